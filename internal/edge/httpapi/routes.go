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

// access is what a route asks of its caller. A route that states none is closed to everybody.
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

// need is the right that a route asks of an operator, and in what.
type need struct {
	right control.Right
	in    subject
}

// subject is what a right has to be one in.
type subject uint8

const (
	nowhere          subject = iota // what no operator may, so that no route for operators can do without saying what it needs
	oneself                         // any operator may: the route is about who asks, or shows only what they may see
	aServer                         // the whole server
	instance                        // the instance that the path or the host names
	instanceOfServer                // the same one has to be visible, and the right is one in the server
	instanceOfKey                   // the instance of the API key that the path names
	self                            // who the path names is who asks, or the right is one in the server
	someInstance                    // any instance at all
)

// handler carries out a request that has been let in and whose parameters have been read.
type handler func(*call, http.ResponseWriter) error

// route is one row of the table.
type route struct {
	sites   site
	method  string
	pattern string
	access  access
	need    need
	// action is what the audit log calls an attempt that comes to nothing; "" for what only reads. What succeeds is recorded where
	// it happens.
	action string
	// takes are the query parameters: any other one is refused.
	takes  []parameter
	handle handler
}

// routes is the table of all routes.
func (a *API) routes() []route {
	return slices.Concat(
		serverRoutes(), dataRoutes(), proofRoutes(), viewRoutes(), accountRoutes(), scrubRoutes(), operatorRoutes(), instanceRoutes(), keyRoutes(), specRoutes(), recordRoutes(),
		a.devRoutes(), mounted(slices.Concat(tombstoneRoutes(), adminRoutes())), mounted(proofRows()), mounted(checkpointRows()), a.nodeRoutes(),
		mounted(backupRows()), backupRoutes(),
	)
}

const (
	get  = http.MethodGet
	post = http.MethodPost
)

// serverRoutes tell what a server is and how it does.
func serverRoutes() []route {
	const all = dataSite | controlSite | internalSite
	return []route{
		{all, get, "/{$}", open, need{}, "", anything(), (*call).root},
		{all, get, "/livez", free, need{}, "", anything(), (*call).live},
		{all, get, "/readyz", free, need{}, "", readiness(), (*call).ready},
		{controlSite, get, openAPIPath, open, need{}, "", nil, openAPI(ControlDocument)},
		{controlSite, get, corePagesPath, open, need{}, "", nil, (*call).corePages},
		{dataSite, get, openAPIPath, reader, need{control.RightView, instance}, "", inParts(), openAPI(InstanceDocument)},
		{internalSite, get, openAPIPath, free, need{}, "", nil, openAPI(InternalDocument)},
	}
}

// dataRoutes read and write the events of an environment.
func dataRoutes() []route {
	return []route{
		{dataSite, get, "/{type}", read, need{}, "", counted(), (*call).listOrSingleton},
		{dataSite, get, "/{type}/{id}", read, need{}, "", moments(), (*call).aggregate},
		{dataSite, get, "/{type}/nearby/stream", read, need{}, "", streamedPlaces(around()), placesStream((*call).askAround)},
		{dataSite, get, "/{type}/containing/stream", read, need{}, "", streamedPlaces(having()), placesStream((*call).askHaving)},
		{dataSite, get, "/{type}/within/stream", read, need{}, "", streamedPlaces(inside()), placesStream((*call).askInside)},
		{dataSite, get, "/{type}/nearby", read, need{}, "", append(around(), parameter{kind: further}), (*call).nearby},
		{dataSite, get, "/{type}/containing", read, need{}, "", append(having(), parameter{kind: further}), (*call).containing},
		{dataSite, get, withinPath, read, need{}, "", append(inside(), parameter{kind: further}), (*call).within},
		{dataSite, post, withinPath, read, need{}, "", append(rowsOfPlaces(), parameter{kind: further}), (*call).withinArea},
		{dataSite, get, "/{type}/{id}/length", read, need{}, "", nil, (*call).length},
		{dataSite, get, "/{type}/{id}/events", read, need{}, "", countedEvents(), (*call).events},
		{dataSite, get, "/{type}/{id}/events/stream", read, need{}, "", streamed(filtered()[0]), (*call).aggregateStream},
		{dataSite, get, "/_events", read, need{}, "", fed(), (*call).feed},
		{dataSite, get, "/_events/stream", read, need{}, "", streamed(filtered()...), (*call).feedStream},
		{dataSite, post, transactionPath, write, need{}, "", tryable(), (*call).postTransaction},
		{dataSite, post, "/{type}/_new", write, need{}, "", tryable(), (*call).postNewBatch},
		{dataSite, post, "/{type}/_new/{event}", write, need{}, "", tryable(), (*call).postNewEvent},
		{dataSite, post, "/{type}/{id}", write, need{}, "", tryable(), (*call).postBatch},
		{dataSite, post, "/{type}/{id}/{event}", write, need{}, "", tryable(), (*call).postEvent},
	}
}

// viewPrefix starts the paths of projections. They have a router of their own, for the reason that adminPrefix has one.
const viewPrefix = "/_projections/"

// viewRoutes read projections.
func viewRoutes() []route {
	return []route{
		{viewSite, get, viewPrefix + "{name}", read, need{}, "", viewedOrListed(), (*call).projectionOrRows},
		{viewSite, get, viewPrefix + "{name}/_stream", read, need{}, "", streamedRows(), (*call).rowsStream},
		{viewSite, get, viewPrefix + "{name}/_count", read, need{}, "", []parameter{filtering()}, (*call).countRows},
		{viewSite, get, viewPrefix + "{name}/{id}/stream", read, need{}, "", streamedView(), (*call).projectionStream},
		{viewSite, get, viewPrefix + "{name}/{id}", read, need{}, "", viewed(), (*call).projection},
	}
}

// accountRoutes are those of the operator who asks.
func accountRoutes() []route {
	own := need{in: oneself}
	return []route{
		{controlSite, get, "/setup", open, need{}, "", nil, (*call).setupPage},
		{controlSite, post, "/api/setup", open, need{}, "", nil, (*call).setup},
		{controlSite, post, "/api/login", open, need{}, "", nil, (*call).login},
		{controlSite, post, "/api/logout", operator, own, "", nil, (*call).logout},
		{controlSite, get, "/api/me", operator, own, "", nil, (*call).me},
		{controlSite, post, "/api/me/password", operator, own, "operator.set_password", nil, (*call).changePassword},
	}
}

// operatorRoutes manage operators and what holds for the whole server.
func operatorRoutes() []route {
	manage, themselves := need{control.RightManage, aServer}, need{control.RightManage, self}
	return []route{
		{controlSite, get, "/api/operators", operator, manage, "", paged(), (*call).listOperators},
		{controlSite, post, "/api/operators", operator, manage, "operator.create", nil, (*call).createOperator},
		{controlSite, get, "/api/operators/{id}", operator, themselves, "", nil, (*call).getOperator},
		{controlSite, http.MethodPatch, "/api/operators/{id}", operator, manage, "operator.set_role", nil, (*call).changeOperator},
		{controlSite, http.MethodDelete, "/api/operators/{id}", operator, manage, "operator.delete", nil, (*call).deleteOperator},
		{controlSite, post, "/api/operators/{id}/password", operator, manage, "operator.set_password", nil, (*call).resetPassword},
		{controlSite, post, "/api/operators/{id}/revoke_tokens", operator, themselves, "operator.revoke_tokens", nil, (*call).revokeTokens},
		{controlSite, http.MethodPut, "/api/operators/{id}/grants/{instance}", operator, manage, "operator.grant", nil, (*call).grant},
		{controlSite, http.MethodDelete, "/api/operators/{id}/grants/{instance}", operator, manage, "operator.withdraw", nil, (*call).withdraw},
		{controlSite, post, "/api/signing_keys/rotate", operator, manage, "signing_key.rotate", nil, (*call).rotateSigningKey},
		{controlSite, get, "/api/nodes", operator, need{control.RightView, aServer}, "", paged(), (*call).listNodes},
	}
}

// instanceRoutes manage instances.
func instanceRoutes() []route {
	view, manage := need{control.RightView, instance}, need{control.RightManage, instance}
	return []route{
		{controlSite, get, "/api/instances", operator, need{in: oneself}, "", paged(), (*call).listInstances},
		{controlSite, post, "/api/instances", operator, need{control.RightManage, aServer}, "instance.create", nil, (*call).createInstance},
		{controlSite, get, "/api/instances/{id}", operator, view, "", nil, (*call).getInstance},
		{controlSite, http.MethodPatch, "/api/instances/{id}", operator, manage, "instance.change", nil, (*call).changeInstance},
		{controlSite, http.MethodDelete, "/api/instances/{id}", operator, need{control.RightManage, instanceOfServer}, "instance.delete", nil, (*call).deleteInstance},
		{controlSite, get, "/api/instances/{id}/operators", operator, manage, "", paged(), (*call).instanceOperators},
		{controlSite, get, "/api/instances/{id}/usage", operator, view, "", span(), onWorker("usage", (*call).usageDays)},
		{controlSite, get, "/api/plans", operator, need{in: oneself}, "", nil, (*call).listPlans},
	}
}

// keyRoutes manage API keys.
func keyRoutes() []route {
	manage := need{control.RightManage, instanceOfKey}
	return []route{
		{controlSite, get, "/api/instances/{id}/keys", operator, need{control.RightAudit, instance}, "", pagedKeys(), (*call).listKeys},
		{controlSite, post, "/api/instances/{id}/keys", operator, need{control.RightManage, instance}, "key.create", nil, (*call).createKey},
		{controlSite, get, "/api/keys/{id}", operator, need{control.RightAudit, instanceOfKey}, "", nil, (*call).getKey},
		{controlSite, post, "/api/keys/{id}/rotate", operator, manage, "key.rotate", nil, (*call).rotateKey},
		{controlSite, post, "/api/keys/{id}/schedule_revocation", operator, manage, "key.schedule_revocation", nil, (*call).scheduleRevocation},
		{controlSite, http.MethodDelete, "/api/keys/{id}", operator, manage, "key.revoke", nil, (*call).revokeKey},
	}
}

// specRoutes deploy specs and show them where the environment is a parameter or a member of the body.
func specRoutes() []route {
	view, change := need{control.RightView, instance}, need{control.RightDeploy, instance}
	const path = "/api/instances/{instance_}/"
	return []route{
		{controlSite, post, path + "spec", operator, change, "spec.deploy", preparing(deploying()...), onWorker("spec", (*call).deploySpec)},
		{controlSite, post, path + "spec/rollback", operator, change, "spec.rollback", trying(), onWorker("spec/rollback", (*call).rollBackSpec)},
		{controlSite, post, path + "spec/promote", operator, change, "spec.promote", trying(), onWorker("spec/promote", (*call).promoteSpec)},
		{controlSite, get, path + "spec", operator, view, "", inEnvironment(), (*call).getSpec},
		{controlSite, get, path + "spec/history", operator, view, "", inEnvironment(paged()...), (*call).listSpecs},
		{controlSite, get, path + "spec/versions/{version}", operator, view, "", inEnvironment(), (*call).getSpecVersion},
		{controlSite, get, path + "spec/diff", operator, view, "", inEnvironment(compared()...), (*call).diffSpecs},
		{controlSite, get, path + "projections", operator, view, "", inEnvironment(paged()...), onWorker("projections", (*call).listProjections)},
	}
}

// recordRoutes show what was done and what went wrong.
func recordRoutes() []route {
	all, one := need{control.RightAudit, someInstance}, need{control.RightAudit, instance}
	return []route{
		{controlSite, get, "/api/audit", operator, all, "", append(audited(), anyInstance(), limited(), cursor()), (*call).listAudit},
		{controlSite, get, "/api/audit/export", operator, all, "", append(audited(), anyInstance()), (*call).exportAudit},
		{controlSite, get, "/api/instances/{id}/audit", operator, one, "", append(audited(), limited(), cursor()), (*call).listAudit},
		{controlSite, get, "/api/instances/{id}/audit/export", operator, one, "", audited(), (*call).exportAudit},
		{controlSite, get, "/api/" + faultPattern, operator, need{control.RightOperate, aServer}, "", nil, (*call).getFault},
	}
}

// devRoutes are those of development servers.
func (a *API) devRoutes() []route {
	if a.AdvanceClock == nil {
		return nil
	}
	return []route{{dataSite | controlSite, post, "/_dev/clock/advance", operator, need{control.RightManage, aServer}, "", nil, (*call).advanceClock}}
}

// adminRoutes are the administration of an environment, without what their paths begin with. Their handlers find the
// environment in instance, env and tenant of the call and who asks in its principal, whichever way the request came. Patterns
// may name their wildcards as they like, but for instance_ and env_.
func adminRoutes() []route {
	view, inspect, operate := need{control.RightView, instance}, need{control.RightInspect, instance}, need{control.RightOperate, instance}
	change := need{control.RightDeploy, instance}

	return []route{
		// What the server has noted.
		{0, get, faultPattern, operator, inspect, "", nil, (*call).getFault},

		// Specs.
		{0, get, "spec", operator, view, "", nil, (*call).getSpec},
		{0, get, "spec/history", operator, view, "", paged(), (*call).listSpecs},
		{0, get, "spec/versions/{version}", operator, view, "", nil, (*call).getSpecVersion},
		{0, get, "spec/diff", operator, view, "", compared(), (*call).diffSpecs},

		// What is to become a spec.
		{0, get, "spec/prepared", operator, view, "", nil, (*call).getPreparedSpec},
		{0, http.MethodDelete, "spec/prepared", operator, change, "spec.cancel_prepared", nil, (*call).cancelPreparedSpec},

		// Projections.
		{0, get, "projections", operator, view, "", paged(), (*call).listProjections},
		{0, post, "projections", operator, change, "projection.deploy", preparing(trying()...), (*call).postProjection},
		{0, get, "projections/{name}", operator, view, "", nil, (*call).getProjection},
		{0, http.MethodDelete, "projections/{name}", operator, change, "projection.remove", nil, (*call).removeProjection},
		{0, post, "projections/{name}/rebuild", operator, operate, "projection.rebuild", nil, (*call).rebuildProjection},
		{0, post, "projections/{name}/verify", operator, operate, "projection.verify", nil, (*call).verifyProjection},
		{0, http.MethodDelete, "projections/{name}/build", operator, operate, "projection.cancel_build", nil, (*call).cancelBuild},

		// Places.
		{0, get, "places", operator, view, "", nil, (*call).describePlaces},
		{0, post, "places/verify", operator, operate, "place.verify", nil, (*call).verifyPlaces},

		// Tags.
		{0, get, "tags", operator, view, "", nil, (*call).listTags},

		// Files of custom code.
		{0, get, "blobs", operator, inspect, "", paged(), (*call).listBlobs},
		{0, post, "blobs", operator, operate, "blob.upload", nil, (*call).putBlob},
		{0, get, "blobs/{name}", operator, inspect, "", version(), (*call).getBlob},
		{0, get, "blobs/{name}/versions", operator, inspect, "", paged(), (*call).listBlobVersions},
		{0, http.MethodDelete, "blobs/{name}", operator, operate, "blob.delete", version(), (*call).deleteBlob},

		// Looking for faults.
		{0, get, "debug", operator, inspect, "", nil, (*call).getDebug},
		{0, post, "debug", operator, operate, "debug.set", nil, (*call).setDebug},
		{0, get, "implications/failed", operator, inspect, "", paged(), (*call).listFailedImplications},

		// Sagas.
		{0, get, "sagas", operator, inspect, "", pagedSagas(), (*call).listSagas},
		{0, get, "sagas/{saga}", operator, inspect, "", nil, (*call).getSaga},
		{0, post, "sagas/{saga}/retry", operator, operate, "saga.retry", nil, (*call).retrySaga},

		// Listeners and their deliveries.
		{0, get, "listeners", operator, inspect, "", paged(), (*call).listListeners},
		{0, post, "listeners/{name}/pause", operator, operate, "listener.pause", nil, (*call).pauseListener},
		{0, post, "listeners/{name}/resume", operator, operate, "listener.resume", nil, (*call).resumeListener},
		{0, post, "listeners/{name}/rotate_secret", operator, operate, "listener.rotate_secret", nil, (*call).rotateListener},
		{0, post, "listeners/{name}/replay", operator, operate, "listener.replay", nil, (*call).replayListener},
		{0, post, "listeners/{name}/trigger", operator, operate, "listener.trigger", nil, (*call).triggerListener},
		{0, get, "deliveries", operator, inspect, "", pagedDeliveries(), (*call).listDeliveries},
		{0, get, "deliveries/{delivery}", operator, inspect, "", nil, (*call).getDelivery},
		{0, post, "deliveries/{delivery}/retry", operator, operate, "delivery.retry", nil, (*call).retryDelivery},

		// Events that come later.
		{0, get, "scheduled", operator, inspect, "", pagedScheduled(), (*call).listScheduled},
		{0, get, "scheduled/dead_letters", operator, inspect, "", paged(), (*call).listDeadLetters},
		{0, get, "scheduled/dead", operator, inspect, "", paged(), (*call).listDeadLetters},
		{0, http.MethodDelete, "scheduled/{scheduled_id}", operator, operate, "scheduled.cancel", nil, (*call).cancelScheduled},
		{0, post, "scheduled/{scheduled_id}/cancel", operator, operate, "scheduled.cancel", nil, (*call).cancelScheduled},
		{0, post, "scheduled/{scheduled_id}/retry", operator, operate, "scheduled.retry", nil, (*call).retryScheduled},

		// Events in files.
		{0, get, "export", operator, need{control.RightAudit, instance}, "", exported(), (*call).export},
		{0, post, "import", operator, operate, "events.import", nil, (*call).importEvents},
		{0, post, "import_jsonl", operator, operate, "events.import", nil, (*call).importEvents},
		{0, post, "cold_start", operator, operate, "events.cold_start", nil, (*call).coldStart},
		{0, post, "inject", operator, operate, "events.inject", nil, (*call).injectEvents},
	}
}

// adminPrefix starts the paths of the administration on the hosts of an environment. They have a router of their own,
// since "/_admin/x/{name}" and "/{type}/{id}/length" cannot stand side by side in one.
const adminPrefix = "/_admin/"

// mounted makes each row of the administration of an environment reachable in three ways: on the hosts of the environment and
// on the control host with an operator's token, and on the internal listener with the node secret.
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
		if row.pattern == faultPattern && c.faultHere() {
			return row.handle(c, w)
		}
		return c.forwarded(w, c.opsPath(), row.handle)
	}
}

// onWorker passes a request about an instance on to the worker that has it, at a path that the internal listener has for it.
func onWorker(path string, handle handler) handler {
	return func(c *call, w http.ResponseWriter) error {
		return c.forwarded(w, "/internal/control/instances/"+c.instance+"/"+path, handle)
	}
}

// nodeRoutes are what workers ask of the headnode, and the headnode of workers.
func (a *API) nodeRoutes() []route {
	const control = "/internal/control/"
	switch {
	case a.Cluster == nil:
		return nil
	case a.Cluster.Node == "":
		return []route{
			{internalSite, post, control + "changes", node, need{}, "", nil, (*call).pollChanges},
			{internalSite, post, control + "specs", node, need{}, "", nil, (*call).putSpecOfWorker},
			{internalSite, get, control + "specs/{instance}/{env}/{version}", node, need{}, "", nil, (*call).specOfHeadnode},
			{internalSite, post, control + "audit", node, need{}, "", nil, (*call).auditOfWorker},
		}
	default:
		const path = control + "instances/{instance_}/"
		return []route{
			{internalSite, post, path + "spec", node, need{in: instance}, "spec.deploy", preparing(deploying()...), (*call).deploySpec},
			{internalSite, post, path + "spec/rollback", node, need{in: instance}, "spec.rollback", trying(), (*call).rollBackSpec},
			{internalSite, post, path + "spec/promote", node, need{in: instance}, "spec.promote", trying(), (*call).promoteSpec},
			{internalSite, get, path + "projections", node, need{in: instance}, "", inEnvironment(paged()...), (*call).listProjections},
			{internalSite, get, path + "backup_settings", node, need{in: instance}, "", nil, (*call).getBackupSettings},
			{internalSite, http.MethodPut, path + "backup_settings", node, need{in: instance}, "backup_settings.change", tryingPlace(), (*call).changeBackupSettings},
			{internalSite, get, path + "usage", node, need{in: instance}, "", span(), (*call).usageDays},
			{internalSite, get, path + "month", node, need{in: instance}, "", nil, (*call).usageMonth},
			{internalSite, get, control + faultPattern, node, need{}, "", nil, (*call).faultOfWorker},
			{internalSite, get, control + "scrub", node, need{}, "", nil, (*call).getScrub},
			{internalSite, post, control + "scrub", node, need{}, "", nil, (*call).beginScrubOfWorker},
		}
	}
}
