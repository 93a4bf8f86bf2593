// Package messageid defines the IDs of the log messages that units/edgeway.catalog explains.
package messageid

// The constants are the values of the log attribute "message_id". Each value is 128 random bits in hexadecimal
// (systemd-id128 new). A value never changes, because operators filter the journal by MESSAGE_ID.
const (
	SyncFailed               = "439957022047823733a90ea36bbdf8fe"
	SyncRecovered            = "d160083f53b8643523ce3a9760027287"
	Drifted                  = "11069c3748b4535a94b1ccbd3f4a10de"
	SyncRefused              = "af24778f7c2d0fb9d1adc0706ce92a61"
	ServicePortLeftOut       = "2c79c2d4edb3ddd40e465b717bed1bb9"
	TooManyServiceRoutes     = "cad30e3aa1836ce11ca0de0b0c03cc1e"
	ObjectProblem            = "5db7360b7fbe152e57cb132b9db453d6"
	CredentialsReplaced      = "bbe64cabb548a7c3662c4bd5064033d9"
	LastKnownUnused          = "9fb49615b58517e2a1f6f27fd145c863"
	ConfigurationNotReloaded = "614da61f805c2a085a92c2bc23e9a1a6"
	ConfigurationNotStarted  = "9c2b3373a7c329c71177f2cdfa37802c"
	LeftoversNotRemoved      = "0567f645e7b6f0c5f87185be05ad4baf"
	EndpointDead             = "6bb3651d2e2448aca1a989dea77fc526"
	EndpointAlive            = "0366c059d4b64dabbf31477499dd2a27"
	LoopbackNodePortUnbound  = "5d429eb86365e3deb43b44ec8652151d"
	LoopbackNodePortsFull    = "ca97d23969d69912aeb09ae68c8bec9c"
	HealthCheckPortUnbound   = "6bfe0afc9e0dae1cc08663771d53eb6b"
	SocketUnitUnused         = "0f7e7edbf875130bcd15af1ebf772c2d"
	DescriptorUnusable       = "ab50b6980826500132143b2510059cd2"
	SyncStuck                = "8835e4b204eeff9d12371501f8143ca4"
	FaultBegan               = "3c9d1b64e0a7452f8b6f2e7ad5108c43"
	FaultEnded               = "b7e25f0c93d64a18a2c40d9e71f6835b"
	ManagerNotNotified       = "f919f8385e2e1c698befb2ff691bda33"
	ServiceAdded             = "5f9589ac7662153a2076ac1fb11f7ced"
	ServiceRemoved           = "5e16ce8d7ceda2afc395718341af9619"
	EndpointsGone            = "331aa90efc843778c2c73ea0603a51a8"
	EndpointsBack            = "49ec6ea5f983cf69939e66cc6de1cee7"
	Flapping                 = "0b02dd0df95cfb6d4b6cc9721070a6d4"
	LinesOmitted             = "2259dd8d93eedbc8ff5dc4388b80728f"
)
