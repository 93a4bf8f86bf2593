package nftables

import "edgeway/proxiers/internal/plantest"

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
