package journal

// Fault is something that an operator meets, and that units/edgeway.catalog explains.
type Fault struct {
	// ID is the MESSAGE_ID: 128 bits that never change, in hexadecimal.
	ID string
	// Message is the static text of the log line.
	Message string
}

// Faults lists all named faults, and the good news that ends one.
func Faults() []Fault {
	return []Fault{
		{"439957022047823733a90ea36bbdf8fe", "sync failed"},
		{"d160083f53b8643523ce3a9760027287", "sync recovered"},
		{"11069c3748b4535a94b1ccbd3f4a10de", "kernel state drifted, full sync"},
		{"af24778f7c2d0fb9d1adc0706ce92a61", "kernel refused a sync, searching for the ServicePort to blame"},
		{"2c79c2d4edb3ddd40e465b717bed1bb9", "ServicePort left out"},
		{"5db7360b7fbe152e57cb132b9db453d6", "object has a fault, what is wrong is left out"},
		{"20231b606b376222deb6df29ec422462", "api server not usable"},
		{"a828f323d85811811e9e789be17af262", "api server usable again"},
		{"9fb49615b58517e2a1f6f27fd145c863", "last-known state not used"},
		{"0d49f31b7b67b8f0b2b3ed523893e25d", "end of the last-known journal is damaged and was left out"},
		{"5ed7f6b9f5d8b1df4d4e5f32c5e3a672", "last-known state not saved"},
		{"614da61f805c2a085a92c2bc23e9a1a6", "configuration not reloaded, the running one stays in force"},
		{"9c2b3373a7c329c71177f2cdfa37802c", "new configuration does not start, going back to the one before"},
		{"0567f645e7b6f0c5f87185be05ad4baf", "rules of an unused component are left until the next full sync"},
		{"f088e8c25a75bbc5c34d4e03a0910804", "manifests cannot be read, what they held before is kept"},
		{"5d429eb86365e3deb43b44ec8652151d", "NodePort is not served on loopback until its address can be listened on"},
		{"ca97d23969d69912aeb09ae68c8bec9c", "connections to NodePorts on loopback wait until others end"},
		{"6bfe0afc9e0dae1cc08663771d53eb6b", "health check port cannot be opened; it is tried again"},
		{"0f7e7edbf875130bcd15af1ebf772c2d", "socket of a socket unit is no NodePort, its clients are reset"},
		{"ab50b6980826500132143b2510059cd2", "passed descriptor is of no use and is closed"},
		{"8835e4b204eeff9d12371501f8143ca4", "sync does not end, the watchdog is not answered until it does"},
		{"f919f8385e2e1c698befb2ff691bda33", "service manager can not be told, the daemon goes on without it"},
	}
}
