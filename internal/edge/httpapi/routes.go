package httpapi

import (
	"net/http"
	"slices"

	"j17/internal/plane/control"
)

// site is a set of hosts with routes of their own.
type site uint8

const (
	dataSite site = 1 << iota
	controlSite
	internalSite
	adminSite // paths below /_admin/ on the hosts of an environment
	viewSite  // paths below /_projections/ there
)

// access is what a route demands of its caller. A route that states none is closed to everybody.
type access uint8

const (
	unstated access = iota
	free            // not even rates are limited
	open
	read     // an API key of the environment
	write    // an API key with scope write
	reader   // an API key of the environment or an operator's token, and of an operator what the route's need says
	operator // an operator's token, and what the route's need says
	node     // the node secret
)

// need is the right that a route demands of an operator, and in what.
type need struct {
	right control.Right
	in    subject
}

// subject is what a right applies to.
type subject uint8

const (
	// No operator has a right here, so that a route for operators cannot leave its need out.
	nowhere          subject = iota
	oneself                  // any operator may: the route is about the caller, or shows only what they may see
	aServer                  // the whole server
	instance                 // the instance that the path or the host names
	instanceOfServer         // the same one has to be visible, and the right is one in the server
	instanceOfKey            // the instance of the API key that the path names
	self                     // the path names the caller, or the right is one in the server
	someInstance             // any instance at all
)

// handler carries out a request that has been let in and whose parameters have been read.
type handler func(*call, http.ResponseWriter) error

// route is one row of the table: who may send which request, what answers it, and how documents describe both.
type route struct {
	sites   site
	method  string
	pattern string
	access  access
	need    need
	// action is what the audit log calls a failed attempt; "" for reads. Successes are recorded where they happen.
	action string
	handle handler
	operation
}

// routes is the table of all routes.
func (a *API) routes() []route {
	return slices.Concat(
		a.server.routes(), a.documents.routes(), a.reads.routes(), a.places.routes(), a.feeds.routes(),
		a.writes.routes(),
		a.proofs.routes(), a.projections.routes(), a.accounts.routes(), a.sessions.routes(), a.dashboard.routes(),
		a.scrubs.routes(), a.operators.routes(), a.nodes.routes(),
		a.instances.routes(), a.keys.routes(), a.specs.routes(), a.derived.controlRoutes(), a.audits.routes(),
		a.devRoutes(),
		mounted(slices.Concat(
			a.tombstones.routes(), a.audits.adminRoutes(), a.specs.adminRoutes(), a.derived.routes(),
			a.blobs.routes(), a.debug.routes(), a.sagas.routes(), a.listeners.routes(), a.schedules.routes(),
			a.reads.adminRoutes(), a.histories.routes(), a.feeds.adminRoutes(), a.traces.adminRoutes(),
			a.attention.routes(), a.exports.routes(), a.imports.routes(), a.proofs.adminRoutes(),
			a.checkpoints.routes(),
		)),
		a.nodeRoutes(), mounted(a.backups.adminRoutes()), a.backups.routes(),
	)
}

const (
	get    = http.MethodGet
	post   = http.MethodPost
	put    = http.MethodPut
	patch  = http.MethodPatch
	remove = http.MethodDelete
)

// viewPrefix starts the paths of projections, which have a router of their own for the same reason as adminPrefix.
const viewPrefix = "/_projections/"

// adminPrefix starts the paths of the administration on the hosts of an environment. They have a router of their own,
// since one router cannot have both "/_admin/x/{name}" and "/{type}/{id}/length".
const adminPrefix = "/_admin/"

// mounted makes each row of the administration of an environment reachable in three ways: on the hosts of the
// environment and on the control host with an operator's token, and on the internal listener with the node secret. The
// patterns leave out the beginnings of the paths, and may name their wildcards freely, except for instance_ and env_.
// Whichever way the request came, handlers find the environment in instance, env and tenant of the call and the caller
// in its principal.
func mounted(rows []route) []route {
	var all []route
	for _, row := range rows {
		own, above, below := row, row, row
		own.sites, own.pattern = adminSite, adminPrefix+row.pattern
		above.sites, above.pattern, above.handle = controlSite, "/api/instances/{instance_}/ops/{env_}/"+row.pattern, fromHeadnode(row)
		below.sites, below.pattern, below.access = internalSite, "/internal/instances/{instance_}/{env_}/"+row.pattern, node
		all = append(all, own, above, below)
	}
	return all
}

// fromHeadnode passes a request about an environment on to the worker that has it.
func fromHeadnode(row route) handler {
	return func(c *call, w http.ResponseWriter) error {
		if row.pattern == faultPattern && c.api.audits.faultHere(c) {
			return row.handle(c, w)
		}
		return c.api.forward.forwarded(c, w, c.api.forward.opsPath(c), row.handle)
	}
}

// onWorker passes a request about an instance on to the worker that has it, at a path that the internal listener has
// for it.
func onWorker(path string, handle handler) handler {
	return func(c *call, w http.ResponseWriter) error {
		return c.api.forward.forwarded(c, w, "/internal/control/instances/"+c.instance+"/"+path, handle)
	}
}
