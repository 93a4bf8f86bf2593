package journal

// Fault is a condition that an operator may meet, which units/edgeway.catalog explains.
type Fault struct {
	// ID is the MESSAGE_ID: 128 bits that never change, in hexadecimal.
	ID string
	// Message is the static text of the log line.
	Message string
}

// Faults lists all named faults, and the messages that end one.
func Faults() []Fault {
	return []Fault{
		{"439957022047823733a90ea36bbdf8fe", "sync failed"},
		{"d160083f53b8643523ce3a9760027287", "sync recovered"},
		{"11069c3748b4535a94b1ccbd3f4a10de", "kernel state drifted, full sync"},
		{"af24778f7c2d0fb9d1adc0706ce92a61", "kernel refused a sync, searching for the refused ServicePort"},
		{"2c79c2d4edb3ddd40e465b717bed1bb9", "ServicePort left out"},
		{"6f1c0a4be2d84c0f9f0e5b7d3a92c816", "Service left out because of its size"},
		{"cad30e3aa1836ce11ca0de0b0c03cc1e", "more addresses of Services than routes are kept to, the rest cannot be reached from this host"},
		{"5db7360b7fbe152e57cb132b9db453d6", "object has a problem, the affected part is ignored"},
		{"20231b606b376222deb6df29ec422462", "api server not usable"},
		{"a828f323d85811811e9e789be17af262", "api server usable again"},
		{"1ef169fe79bda6057902956039fc222d", "new kubeconfig cannot be used, the previous one stays in force"},
		{"bbe64cabb548a7c3662c4bd5064033d9", "new credentials in force"},
		{"8304421be436e583aba2c3795ae1b1aa", "credential of the API server expires"},
		{"39e9582a008a5f07d4abbc8acb1a70e9", "kubeconfig is not secure"},
		{"9fb49615b58517e2a1f6f27fd145c863", "last-known state not used"},
		{"0d49f31b7b67b8f0b2b3ed523893e25d", "end of the last-known journal is damaged and was left out"},
		{"5ed7f6b9f5d8b1df4d4e5f32c5e3a672", "last-known state not saved"},
		{"614da61f805c2a085a92c2bc23e9a1a6", "configuration not reloaded, the running one stays in force"},
		{"9c2b3373a7c329c71177f2cdfa37802c", "new configuration does not start, going back to the previous one"},
		{"0567f645e7b6f0c5f87185be05ad4baf", "rules of an unused component not removed, retrying"},
		{"f088e8c25a75bbc5c34d4e03a0910804", "manifests cannot be read whole, nothing is removed"},
		{"6bb3651d2e2448aca1a989dea77fc526", "endpoint does not answer"},
		{"0366c059d4b64dabbf31477499dd2a27", "endpoint answers again"},
		{"5d429eb86365e3deb43b44ec8652151d", "NodePort not served on loopback, its address cannot be bound, retrying"},
		{"ca97d23969d69912aeb09ae68c8bec9c", "new connections to NodePorts on loopback wait until others close"},
		{"6bfe0afc9e0dae1cc08663771d53eb6b", "health check port cannot be bound, retrying"},
		{"0f7e7edbf875130bcd15af1ebf772c2d", "port of a socket unit is no NodePort"},
		{"ab50b6980826500132143b2510059cd2", "passed descriptor cannot be used and is closed"},
		{"8835e4b204eeff9d12371501f8143ca4", "sync is stuck, the watchdog is not notified until it finishes"},
		{"3c9d1b64e0a7452f8b6f2e7ad5108c43", "connections fail because of a problem of this host"},
		{"b7e25f0c93d64a18a2c40d9e71f6835b", "a problem of this host is gone"},
		{"f919f8385e2e1c698befb2ff691bda33", "service manager not notified, continuing without it"},
	}
}
