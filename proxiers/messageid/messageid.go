// Package messageid holds the identifiers of log lines that units/edgeway.catalog explains.
package messageid

// The values of the attribute "message_id". Each is 128 random bits in hexadecimal (systemd-id128 new) and never
// changes, because operators filter the journal by MESSAGE_ID.
const (
	SyncFailed               = "439957022047823733a90ea36bbdf8fe"
	SyncRecovered            = "d160083f53b8643523ce3a9760027287"
	Drifted                  = "11069c3748b4535a94b1ccbd3f4a10de"
	SyncRefused              = "af24778f7c2d0fb9d1adc0706ce92a61"
	ServicePortLeftOut       = "2c79c2d4edb3ddd40e465b717bed1bb9"
	TooManyServiceRoutes     = "cad30e3aa1836ce11ca0de0b0c03cc1e"
	ObjectProblem            = "5db7360b7fbe152e57cb132b9db453d6"
	APIServerUnusable        = "20231b606b376222deb6df29ec422462"
	APIServerUsable          = "a828f323d85811811e9e789be17af262"
	KubeconfigUnusable       = "1ef169fe79bda6057902956039fc222d"
	CredentialsReplaced      = "bbe64cabb548a7c3662c4bd5064033d9"
	CredentialExpires        = "8304421be436e583aba2c3795ae1b1aa"
	KubeconfigInsecure       = "39e9582a008a5f07d4abbc8acb1a70e9"
	LastKnownUnused          = "9fb49615b58517e2a1f6f27fd145c863"
	LastKnownTorn            = "0d49f31b7b67b8f0b2b3ed523893e25d"
	LastKnownUnsaved         = "5ed7f6b9f5d8b1df4d4e5f32c5e3a672"
	ConfigurationNotReloaded = "614da61f805c2a085a92c2bc23e9a1a6"
	ConfigurationNotStarted  = "9c2b3373a7c329c71177f2cdfa37802c"
	LeftoversNotRemoved      = "0567f645e7b6f0c5f87185be05ad4baf"
	ManifestsUnreadable      = "f088e8c25a75bbc5c34d4e03a0910804"
	EndpointDead             = "6bb3651d2e2448aca1a989dea77fc526"
	EndpointAlive            = "0366c059d4b64dabbf31477499dd2a27"
	LoopbackNodePortUnbound  = "5d429eb86365e3deb43b44ec8652151d"
	LoopbackNodePortsFull    = "ca97d23969d69912aeb09ae68c8bec9c"
	HealthCheckPortUnbound   = "6bfe0afc9e0dae1cc08663771d53eb6b"
	SocketUnitUnused         = "0f7e7edbf875130bcd15af1ebf772c2d"
	DescriptorUnusable       = "ab50b6980826500132143b2510059cd2"
	SyncStuck                = "8835e4b204eeff9d12371501f8143ca4"
	HostProblem              = "3c9d1b64e0a7452f8b6f2e7ad5108c43"
	HostProblemGone          = "b7e25f0c93d64a18a2c40d9e71f6835b"
	ManagerNotNotified       = "f919f8385e2e1c698befb2ff691bda33"
)
