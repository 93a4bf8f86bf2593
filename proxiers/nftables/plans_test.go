package nftables

import "edgeway/test/plantest"

var (
	addr          = plantest.Addr
	prefix        = plantest.Prefix
	endpoint      = plantest.Endpoint
	testNode      = plantest.Node
	newPlan       = plantest.Plan
	service       = plantest.Service
	clusterIP     = plantest.ClusterIP
	manyServices  = plantest.ManyServices
	withEndpoints = plantest.WithEndpoints
	webServices   = plantest.SampleServices
	toPods        = plantest.ClusterIPRoutes
)
