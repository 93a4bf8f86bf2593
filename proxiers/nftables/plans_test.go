package nftables

import "edgeway/proxiers/internal/plantest"

// Short names for the plans with which all proxiers are tested.
var (
	addr          = plantest.Addr
	prefix        = plantest.Prefix
	endpoint      = plantest.Endpoint
	testNode      = plantest.Node
	newPlan       = plantest.Plan
	service       = plantest.Service
	clusterIP     = plantest.ClusterIP
	manyServices  = plantest.Many
	withEndpoints = plantest.WithEndpoints
	webServices   = plantest.Web
	toPods        = plantest.ToPods
)
