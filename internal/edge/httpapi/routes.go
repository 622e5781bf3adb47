package httpapi

import (
	"net/http"
	"slices"

	"j17/internal/base/wire"
	"j17/internal/core/decider"
	"j17/internal/lang/spec"
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

// route is one row of the table: who may send which request, what answers it, and how documents describe both.
type route struct {
	sites   site
	method  string
	pattern string
	access  access
	need    need
	// action is what the audit log calls an attempt that comes to nothing; "" for what only reads. What succeeds is recorded where
	// it happens.
	action string
	handle handler
	operation
}

// routes is the table of all routes.
func (a *API) routes() []route {
	return slices.Concat(
		a.serverRoutes(), a.dataRoutes(), a.proofRoutes(), a.viewRoutes(), a.accountRoutes(), a.scrubRoutes(),
		a.operatorRoutes(), a.instanceRoutes(), a.keyRoutes(), a.specRoutes(), a.recordRoutes(), a.devRoutes(),
		mounted(slices.Concat(a.tombstoneRoutes(), a.adminRoutes(), a.proofRows(), a.checkpointRows())),
		a.nodeRoutes(), mounted(a.backupRows()), a.backupRoutes(),
	)
}

const (
	get    = http.MethodGet
	post   = http.MethodPost
	put    = http.MethodPut
	patch  = http.MethodPatch
	remove = http.MethodDelete
)

// serverRoutes tell what a server is and how it does.
func (a *API) serverRoutes() []route {
	const all = dataSite | controlSite | internalSite
	return []route{
		{all, get, "/{$}", open, need{}, "", a.server.root, operation{
			id: "getServer", about: "What this server is", query: anything(), gives: wire.Server{},
		}},
		{all, get, "/livez", free, need{}, "", a.server.live, operation{
			id: "getLiveness", about: "Whether the process answers", query: anything(), headers: signHeader(),
		}},
		{all, get, "/readyz", free, need{}, "", a.server.ready, operation{
			id: "getReadiness", about: "Whether the server takes writes, or answers reads", query: readiness(),
			headers: signHeader(),
		}},
		{controlSite, get, openAPIPath, open, need{}, "", openAPI(ControlDocument), operation{
			id: "getOpenAPI", about: "This document", gives: file{typeJSON}, tagged: true,
		}},
		{controlSite, get, corePagesPath, open, need{}, "", a.server.corePages, operation{
			id: "getCorePages", about: "The documentation that an assistant needs to write a spec and to call its API",
			gives: file{typeText}, tagged: true,
		}},
		{dataSite, get, openAPIPath, reader, need{control.RightView, instance}, "", openAPI(InstanceDocument), operation{
			id: "getOpenAPI", about: "This document", query: inParts(), gives: file{typeJSON}, tagged: true,
		}},
		{internalSite, get, openAPIPath, free, need{}, "", openAPI(InternalDocument), operation{
			id: "getOpenAPI", about: "This document", gives: file{typeJSON}, tagged: true,
		}},
	}
}

// dataRoutes read and write the events of an environment.
func (a *API) dataRoutes() []route {
	return []route{
		{dataSite, get, "/{type}", read, need{}, "", a.reads.listOrSingleton, operation{
			id: "listIDs", about: "The ids of an aggregate type, or the states of a singleton", query: counted(),
			gives: either{wire.IDs{}, wire.Singleton{}},
		}},
		{dataSite, get, "/{type}/{id}", read, need{}, "", a.reads.aggregate, operation{
			id: "getState", about: "The state of an aggregate, now or in the past", query: moments(),
			gives: wire.State{},
		}},
		{dataSite, get, "/{type}/nearby/stream", read, need{}, "", a.places.stream(a.places.askAround), operation{
			id: "streamNearby", about: "Aggregates around a point, as they come and go",
			query: streamedPlaces(around()), gives: file{typeStream}, places: spec.Point,
		}},
		{dataSite, get, "/{type}/containing/stream", read, need{}, "", a.places.stream(a.places.askHaving), operation{
			id: "streamContaining", about: "Aggregates whose areas have a point, as they come and go",
			query: streamedPlaces(having()), gives: file{typeStream}, places: spec.Polygon,
		}},
		{dataSite, get, "/{type}/within/stream", read, need{}, "", a.places.stream(a.places.askInside), operation{
			id: "streamWithin", about: "Aggregates whose points are in an area, as they come and go",
			query: streamedPlaces(inside()), gives: file{typeStream}, places: spec.Point,
		}},
		{dataSite, get, "/{type}/nearby", read, need{}, "", a.places.nearby, operation{
			id: "listNearby", about: "Aggregates around a point, nearest first",
			query: append(around(), parameter{kind: further}), gives: either{wire.Nearby{}, file{typeGeo}},
			places: spec.Point,
		}},
		{dataSite, get, "/{type}/containing", read, need{}, "", a.places.containing, operation{
			id: "listContaining", about: "Aggregates whose areas have a point",
			query: append(having(), parameter{kind: further}), gives: either{wire.Containing{}, file{typeGeo}},
			places: spec.Polygon,
		}},
		{dataSite, get, withinPath, read, need{}, "", a.places.within, operation{
			id: "listWithin", about: "Aggregates whose points are in an area",
			query: append(inside(), parameter{kind: further}), gives: either{wire.Within{}, file{typeGeo}},
			places: spec.Point,
		}},
		{dataSite, post, withinPath, read, need{}, "", a.places.withinArea, operation{
			id: "searchWithin", about: "Aggregates whose points are in an area that the body has",
			query: append(rowsOfPlaces(), parameter{kind: further}), body: area{},
			gives: either{wire.Within{}, file{typeGeo}}, places: spec.Point,
		}},
		{dataSite, get, "/{type}/{id}/length", read, need{}, "", a.reads.length, operation{
			id: "getLength", about: "The number of events of an aggregate", gives: wire.Length{},
		}},
		{dataSite, get, "/{type}/{id}/events", read, need{}, "", a.reads.events, operation{
			id: "listEvents", about: "The events of an aggregate", query: countedEvents(),
			gives: either{wire.Events{}, linesOf{wire.Event{}}}, headers: nextHeader(),
		}},
		{dataSite, get, "/{type}/{id}/events/stream", read, need{}, "", a.feeds.aggregateStream, operation{
			id: "streamEvents", about: "The events of an aggregate as they come", query: streamed(filtered()[0]),
			gives: file{typeStream},
		}},
		{dataSite, get, "/_events", read, need{}, "", a.feeds.feed, operation{
			id: "listFeed", about: "The events of the environment", query: fed(),
			gives: either{wire.FeedPage{}, linesOf{wire.Event{}}}, headers: feedHeaders(),
		}},
		{dataSite, get, "/_events/stream", read, need{}, "", a.feeds.feedStream, operation{
			id: "streamFeed", about: "The events of the environment as they come", query: streamed(filtered()...),
			gives: file{typeStream},
		}},
		{dataSite, post, transactionPath, write, need{}, "", a.writes.postTransaction, operation{
			id: "writeTransaction", about: "Write events to several aggregates, all or none", query: tryable(),
			body: wire.WriteTransaction{}, gives: wire.TransactionWritten{}, made: true, tried: wire.WriteDryRun{},
		}},
		{dataSite, post, "/{type}/_new", write, need{}, "", a.writes.postNewBatch, operation{
			id: "createBatch", about: "Write events to a new aggregate, all or none", query: tryable(),
			body: wire.WriteBatch{}, gives: wire.BatchWritten{}, made: true, tried: wire.WriteDryRun{},
		}},
		{dataSite, post, "/{type}/_new/{event}", write, need{}, "", a.writes.postNewEvent, operation{
			id: "createEvent", about: "Write one event to a new aggregate", query: tryable(), body: wire.WriteEvent{},
			gives: wire.EventWritten{}, made: true, tried: wire.WriteDryRun{},
		}},
		{dataSite, post, "/{type}/{id}", write, need{}, "", a.writes.postBatch, operation{
			id: "writeBatch", about: "Write events to an aggregate, all or none", query: tryable(),
			body: wire.WriteBatch{}, gives: wire.BatchWritten{}, made: true, tried: wire.WriteDryRun{},
		}},
		{dataSite, post, "/{type}/{id}/{event}", write, need{}, "", a.writes.postEvent, operation{
			id: "writeEvent", about: "Write one event to an aggregate", query: tryable(), body: wire.WriteEvent{},
			gives: wire.EventWritten{}, made: true, tried: wire.WriteDryRun{},
		}},
	}
}

// viewPrefix starts the paths of projections. They have a router of their own, for the reason that adminPrefix has one.
const viewPrefix = "/_projections/"

// viewRoutes read projections.
func (a *API) viewRoutes() []route {
	return []route{
		{viewSite, get, viewPrefix + "{name}", read, need{}, "", a.projections.projectionOrRows, operation{
			id:    "getProjection",
			about: "The rows of a projection, or in the array form what it yields for its parameters",
			query: viewedOrListed(), gives: either{wire.Rows{}, wire.Projected{}},
		}},
		{viewSite, get, viewPrefix + "{name}/_stream", read, need{}, "", a.projections.rowsStream, operation{
			id: "streamRows", about: "The rows of a projection as they come, change and go", query: streamedRows(),
			gives: file{typeStream},
		}},
		{viewSite, get, viewPrefix + "{name}/_count", read, need{}, "", a.projections.countRows, operation{
			id: "countRows", about: "How many rows a projection has", query: []parameter{filtering()},
			gives: wire.RowCount{},
		}},
		{viewSite, get, viewPrefix + "{name}/{id}/stream", read, need{}, "", a.projections.projectionStream, operation{
			id: "streamProjectionOf", about: "What a projection yields for an aggregate, as it changes",
			query: streamedView(), gives: file{typeStream},
		}},
		{viewSite, get, viewPrefix + "{name}/{id}", read, need{}, "", a.projections.projection, operation{
			id: "getProjectionOf", about: "What a projection yields for an aggregate, now or in the past",
			query: viewed(), gives: wire.Projected{},
		}},
	}
}

// accountRoutes are those of the operator who asks.
func (a *API) accountRoutes() []route {
	own := need{in: oneself}
	return []route{
		{controlSite, get, "/setup", open, need{}, "", a.server.setupPage, operation{
			id: "getSetupPage", about: "A form for the first operator", gives: file{"text/html"},
		}},
		{controlSite, post, "/api/setup", open, need{}, "", a.accounts.setup, operation{
			id: "setup", about: "Create the first operator", body: wire.Setup{}, gives: wire.SetUp{}, made: true,
		}},
		{controlSite, post, "/api/login", open, need{}, "", a.accounts.login, operation{
			id: "login", about: "Get an operator's token", body: wire.Login{}, gives: wire.LoggedIn{},
		}},
		{controlSite, post, "/api/logout", operator, own, "", a.accounts.logout, operation{
			id: "logout", about: "Make the token good no more",
		}},
		{controlSite, get, "/api/me", operator, own, "", a.accounts.me, operation{
			id: "getMe", about: "The operator who asks", gives: wire.Operator{},
		}},
		{controlSite, post, "/api/me/password", operator, own, "operator.set_password", a.accounts.changePassword, operation{
			id: "changePassword", about: "Change one's own password", body: wire.OwnPassword{},
		}},
	}
}

// operatorRoutes manage operators and what holds for the whole server.
func (a *API) operatorRoutes() []route {
	manage, themselves := need{control.RightManage, aServer}, need{control.RightManage, self}
	return []route{
		{controlSite, get, "/api/operators", operator, manage, "", a.operators.listOperators, operation{
			id: "listOperators", about: "The operators", query: paged(), gives: rows{"operators", wire.Operator{}},
		}},
		{controlSite, post, "/api/operators", operator, manage, "operator.create", a.operators.createOperator, operation{
			id: "createOperator", about: "Create an operator", body: wire.NewOperator{}, gives: wire.Operator{},
			made: true,
		}},
		{controlSite, get, "/api/operators/{id}", operator, themselves, "", a.operators.getOperator, operation{
			id: "getOperator", about: "An operator", gives: wire.Operator{},
		}},
		{controlSite, patch, "/api/operators/{id}", operator, manage, "operator.set_role", a.operators.changeOperator, operation{
			id: "changeOperator", about: "Give an operator another role", body: wire.NewRole{}, gives: wire.Operator{},
		}},
		{controlSite, remove, "/api/operators/{id}", operator, manage, "operator.delete", a.operators.deleteOperator, operation{
			id: "deleteOperator", about: "Delete an operator",
		}},
		{controlSite, post, "/api/operators/{id}/password", operator, manage, "operator.set_password", a.operators.resetPassword, operation{
			id: "resetPassword", about: "Give an operator another password", body: wire.NewPassword{},
		}},
		{controlSite, post, "/api/operators/{id}/revoke_tokens", operator, themselves, "operator.revoke_tokens", a.operators.revokeTokens, operation{
			id: "revokeTokens", about: "Log an operator out everywhere",
		}},
		{controlSite, put, "/api/operators/{id}/grants/{instance}", operator, manage, "operator.grant", a.operators.grant, operation{
			id: "grantInstance", about: "Let an operator work in an instance", gives: wire.Operator{},
		}},
		{controlSite, remove, "/api/operators/{id}/grants/{instance}", operator, manage, "operator.withdraw", a.operators.withdraw, operation{
			id: "withdrawInstance", about: "Let an operator work in an instance no more", gives: wire.Operator{},
		}},
		{controlSite, post, "/api/signing_keys/rotate", operator, manage, "signing_key.rotate", a.operators.rotateSigningKey, operation{
			id: "rotateSigningKey", about: "Sign tokens with a new key", body: wire.KeyRotation{}, optional: true,
		}},
		{controlSite, get, "/api/nodes", operator, need{control.RightView, aServer}, "", a.nodes.listNodes, operation{
			id: "listNodes", about: "The workers", query: paged(), gives: rows{"nodes", wire.Node{}},
		}},
	}
}

// instanceRoutes manage instances.
func (a *API) instanceRoutes() []route {
	view, manage := need{control.RightView, instance}, need{control.RightManage, instance}
	return []route{
		{controlSite, get, "/api/instances", operator, need{in: oneself}, "", a.instances.listInstances, operation{
			id: "listInstances", about: "The instances that one may see", query: paged(),
			gives: rows{"instances", wire.Instance{}},
		}},
		{controlSite, post, "/api/instances", operator, need{control.RightManage, aServer}, "instance.create", a.instances.createInstance, operation{
			id: "createInstance", about: "Create an instance", body: wire.NewInstance{}, gives: wire.Instance{},
			made: true,
		}},
		{controlSite, get, "/api/instances/{id}", operator, view, "", a.instances.getInstance, operation{
			id: "getInstance", about: "An instance, its plan and what it has used", gives: wire.InstanceUse{},
		}},
		{controlSite, patch, "/api/instances/{id}", operator, manage, "instance.change", a.instances.changeInstance, operation{
			id: "changeInstance", about: "Rename an instance, or give it another plan", body: wire.InstanceChange{},
			gives: wire.Instance{},
		}},
		{controlSite, remove, "/api/instances/{id}", operator, need{control.RightManage, instanceOfServer}, "instance.delete", a.instances.deleteInstance, operation{
			id: "deleteInstance", about: "Delete an instance and all that it has", body: wire.Deletion{},
			optional: true,
		}},
		{controlSite, get, "/api/instances/{id}/operators", operator, manage, "", a.operators.instanceOperators, operation{
			id: "listInstanceOperators", about: "Who may work in an instance", query: paged(),
			gives: rows{"operators", wire.Operator{}},
		}},
		{controlSite, get, "/api/instances/{id}/usage", operator, view, "", onWorker("usage", a.instances.usageDays), operation{
			id: "getUsage", about: "What an instance has used, by day", query: span(), gives: wire.Days{},
		}},
		{controlSite, get, "/api/plans", operator, need{in: oneself}, "", a.instances.listPlans, operation{
			id: "listPlans", about: "The plans of the server", gives: wire.Plans{},
		}},
	}
}

// keyRoutes manage API keys.
func (a *API) keyRoutes() []route {
	manage := need{control.RightManage, instanceOfKey}
	return []route{
		{controlSite, get, "/api/instances/{id}/keys", operator, need{control.RightAudit, instance}, "", a.keys.listKeys, operation{
			id: "listKeys", about: "The API keys of an instance", query: pagedKeys(), gives: rows{"keys", wire.Key{}},
		}},
		{controlSite, post, "/api/instances/{id}/keys", operator, need{control.RightManage, instance}, "key.create", a.keys.createKey, operation{
			id: "createKey", about: "Create an API key", body: wire.NewKey{}, gives: wire.MadeKey{}, made: true,
		}},
		{controlSite, get, "/api/keys/{id}", operator, need{control.RightAudit, instanceOfKey}, "", a.keys.getKey, operation{
			id: "getKey", about: "An API key", gives: wire.Key{},
		}},
		{controlSite, post, "/api/keys/{id}/rotate", operator, manage, "key.rotate", a.keys.rotateKey, operation{
			id: "rotateKey", about: "Replace an API key by a new one", body: struct{}{}, optional: true,
			gives: wire.MadeKey{}, made: true,
		}},
		{controlSite, post, "/api/keys/{id}/schedule_revocation", operator, manage, "key.schedule_revocation", a.keys.scheduleRevocation, operation{
			id: "scheduleRevocation", about: "Say when an API key is good no more", body: wire.Revocation{},
			gives: wire.Key{},
		}},
		{controlSite, remove, "/api/keys/{id}", operator, manage, "key.revoke", a.keys.revokeKey, operation{
			id: "revokeKey", about: "Revoke an API key", gives: wire.Key{},
		}},
	}
}

// specRoutes deploy specs and show them where the environment is a parameter or a member of the body.
func (a *API) specRoutes() []route {
	view, change := need{control.RightView, instance}, need{control.RightDeploy, instance}
	const path = "/api/instances/{instance_}/"
	return []route{
		{controlSite, post, path + "spec", operator, change, "spec.deploy", onWorker("spec", a.specs.deploySpec), operation{
			id: "deploySpec", about: "Deploy a spec, or try it", query: preparing(deploying()...), body: file{typeJSON},
			gives: either{wire.Deployed{}, wire.DryRun{}}, anew: wire.Deployed{}, accepted: wire.SpecPrepared{},
			headers: specTag(),
		}},
		{controlSite, post, path + "spec/rollback", operator, change, "spec.rollback", onWorker("spec/rollback", a.specs.rollBackSpec), operation{
			id: "rollBackSpec", about: "Go back to an earlier version of the spec", query: trying(),
			body: wire.Rollback{}, gives: either{wire.Deployed{}, wire.DryRun{}}, anew: wire.Deployed{}, headers: specTag(),
		}},
		{controlSite, post, path + "spec/promote", operator, change, "spec.promote", onWorker("spec/promote", a.specs.promoteSpec), operation{
			id: "promoteSpec", about: "Copy a spec from one environment to another", query: trying(),
			body: wire.Promotion{}, gives: either{wire.Deployed{}, wire.DryRun{}}, anew: wire.Deployed{}, headers: specTag(),
		}},
		{controlSite, get, path + "spec", operator, view, "", a.specs.getSpec, operation{
			id: "getInstanceSpec", about: "The deployed spec", query: inEnvironment(), gives: wire.Spec{}, tagged: true,
		}},
		{controlSite, get, path + "spec/history", operator, view, "", a.specs.listSpecs, operation{
			id: "listInstanceSpecs", about: "All versions of the spec", query: inEnvironment(paged()...),
			gives: rows{"versions", wire.Deployment{}},
		}},
		{controlSite, get, path + "spec/versions/{version}", operator, view, "", a.specs.getSpecVersion, operation{
			id: "getInstanceSpecVersion", about: "A version of the spec", query: inEnvironment(), gives: wire.Spec{},
			tagged: true,
		}},
		{controlSite, get, path + "spec/diff", operator, view, "", a.specs.diffSpecs, operation{
			id: "diffInstanceSpecs", about: "What two versions of the spec say differently",
			query: inEnvironment(compared()...), gives: wire.Differences{},
		}},
		{controlSite, get, path + "projections", operator, view, "", onWorker("projections", a.derived.listProjections), operation{
			id: "listInstanceProjections", about: "The projections of an environment", query: inEnvironment(paged()...),
			gives: wire.Projections{},
		}},
	}
}

// recordRoutes show what was done and what went wrong.
func (a *API) recordRoutes() []route {
	all, one := need{control.RightAudit, someInstance}, need{control.RightAudit, instance}
	return []route{
		{controlSite, get, "/api/audit", operator, all, "", a.audits.listAudit, operation{
			id: "listRecords", about: "The audit log, the newest first",
			query: append(audited(), anyInstance(), limited(), cursor()), gives: wire.Records{},
		}},
		{controlSite, get, "/api/audit/export", operator, all, "", a.audits.exportAudit, operation{
			id: "exportRecords", about: "The audit log, one record a line", query: append(audited(), anyInstance()),
			gives: linesOf{wire.Record{}},
		}},
		{controlSite, get, "/api/instances/{id}/audit", operator, one, "", a.audits.listAudit, operation{
			id: "listInstanceRecords", about: "The audit log of an instance",
			query: append(audited(), limited(), cursor()), gives: wire.Records{},
		}},
		{controlSite, get, "/api/instances/{id}/audit/export", operator, one, "", a.audits.exportAudit, operation{
			id: "exportInstanceRecords", about: "The audit log of an instance, one record a line", query: audited(),
			gives: linesOf{wire.Record{}},
		}},
		{controlSite, get, "/api/" + faultPattern, operator, need{control.RightOperate, aServer}, "", a.audits.getFault, operation{
			id: "getError", about: "Why a request failed", gives: wire.Failed{},
		}},
	}
}

// devRoutes are those of development servers.
func (a *API) devRoutes() []route {
	if a.AdvanceClock == nil {
		return nil
	}
	return []route{{dataSite | controlSite, post, "/_dev/clock/advance", operator, need{control.RightManage, aServer}, "", a.server.advanceClock, operation{
		id: "advanceClock", about: "Move the clock of a development server", body: wire.Advance{},
		gives: wire.Advanced{},
	}}}
}

// adminRoutes are the administration of an environment, without what their paths begin with. Their handlers find the
// environment in instance, env and tenant of the call and who asks in its principal, whichever way the request came. Patterns
// may name their wildcards as they like, but for instance_ and env_.
func (a *API) adminRoutes() []route {
	view, inspect, operate := need{control.RightView, instance}, need{control.RightInspect, instance}, need{control.RightOperate, instance}
	change := need{control.RightDeploy, instance}

	return []route{
		// What the server has noted.
		{0, get, faultPattern, operator, inspect, "", a.audits.getFault, operation{
			id: "getEnvironmentError", about: "Why a request failed", gives: wire.Failed{},
		}},

		// Specs.
		{0, get, "spec", operator, view, "", a.specs.getSpec, operation{
			id: "getSpec", about: "The deployed spec", gives: wire.Spec{}, tagged: true,
		}},
		{0, get, "spec/history", operator, view, "", a.specs.listSpecs, operation{
			id: "listSpecs", about: "All versions of the spec", query: paged(),
			gives: rows{"versions", wire.Deployment{}},
		}},
		{0, get, "spec/versions/{version}", operator, view, "", a.specs.getSpecVersion, operation{
			id: "getSpecVersion", about: "A version of the spec", gives: wire.Spec{}, tagged: true,
		}},
		{0, get, "spec/diff", operator, view, "", a.specs.diffSpecs, operation{
			id: "diffSpecs", about: "What two versions of the spec say differently", query: compared(),
			gives: wire.Differences{},
		}},

		// What is to become a spec.
		{0, get, "spec/prepared", operator, view, "", a.specs.getPreparedSpec, operation{
			id: "getPreparedSpec", about: "The spec that is deployed once its indexes are built",
			gives: wire.PreparedShown{},
		}},
		{0, remove, "spec/prepared", operator, change, "spec.cancel_prepared", a.specs.cancelPreparedSpec, operation{
			id: "cancelPreparedSpec", about: "Give up the spec that is being prepared",
		}},

		// Projections.
		{0, get, "projections", operator, view, "", a.derived.listProjections, operation{
			id: "listProjections", about: "The projections, those of the spec and those that were posted",
			query: paged(), gives: wire.Projections{},
		}},
		{0, post, "projections", operator, change, "projection.deploy", a.derived.postProjection, operation{
			id: "postProjection", about: "Deploy the definition of a projection beside the spec",
			query: preparing(trying()...), body: file{typeJSON},
			gives: either{wire.PostedProjection{}, wire.ProjectionDryRun{}}, anew: wire.PostedProjection{},
			accepted: wire.PostedProjection{},
		}},
		{0, get, "projections/{name}", operator, view, "", a.derived.getProjection, operation{
			id: "describeProjection", about: "A projection, where it is declared and how far its index is",
			gives: wire.Projection{},
		}},
		{0, remove, "projections/{name}", operator, change, "projection.remove", a.derived.removeProjection, operation{
			id: "removeProjection", about: "Remove a projection that was posted",
		}},
		{0, post, "projections/{name}/rebuild", operator, operate, "projection.rebuild", a.derived.rebuildProjection, operation{
			id: "rebuildProjection", about: "Build the indexes of a projection anew", body: struct{}{}, optional: true,
			accepted: wire.Projection{},
		}},
		{0, post, "projections/{name}/verify", operator, operate, "projection.verify", a.derived.verifyProjection, operation{
			id: "verifyProjection", about: "Compare the indexes of a projection with the events", body: struct{}{},
			optional: true, gives: wire.VerifiedProjection{},
		}},
		{0, remove, "projections/{name}/build", operator, operate, "projection.cancel_build", a.derived.cancelBuild, operation{
			id: "cancelProjectionBuild", about: "Give up what is being built for a projection",
		}},

		// Places.
		{0, get, "places", operator, view, "", a.derived.describePlaces, operation{
			id: "describePlaces", about: "The places that aggregates have, and how far those of older events are",
			gives: wire.Places{},
		}},
		{0, post, "places/verify", operator, operate, "place.verify", a.derived.verifyPlaces, operation{
			id: "verifyPlaces", about: "Compare the places of aggregates with the events", body: struct{}{},
			optional: true, gives: wire.VerifiedPlaces{},
		}},

		// Tags.
		{0, get, "tags", operator, view, "", a.derived.listTags, operation{
			id: "listTags", about: "The tags that the spec declares, and how far older events are with them",
			gives: wire.Tags{},
		}},

		// Files of custom code.
		{0, get, "blobs", operator, inspect, "", a.blobs.listBlobs, operation{
			id: "listBlobs", about: "The files", query: paged(), gives: rows{"blobs", wire.Blob{}},
		}},
		{0, post, "blobs", operator, operate, "blob.upload", a.blobs.putBlob, operation{
			id: "putBlob", about: "Upload a file", body: form{}, gives: wire.Stored{}, anew: wire.Stored{},
		}},
		{0, get, "blobs/{name}", operator, inspect, "", a.blobs.getBlob, operation{
			id: "getBlob", about: "The content of a file", query: version(), gives: file{"application/octet-stream"},
			tagged: true, headers: contentHeaders(),
		}},
		{0, get, "blobs/{name}/versions", operator, inspect, "", a.blobs.listBlobVersions, operation{
			id: "listBlobVersions", about: "The versions of a file", query: paged(),
			gives: rows{"versions", wire.Blob{}},
		}},
		{0, remove, "blobs/{name}", operator, operate, "blob.delete", a.blobs.deleteBlob, operation{
			id: "deleteBlob", about: "Delete a version of a file, or all", query: version(),
		}},

		// Looking for faults.
		{0, get, "debug", operator, inspect, "", a.debug.getDebug, operation{
			id: "getDebug", about: "What is traced", gives: wire.DebugState{},
		}},
		{0, post, "debug", operator, operate, "debug.set", a.debug.setDebug, operation{
			id: "setDebug", about: "Trace custom code for a while", body: wire.Debugging{}, gives: wire.DebugState{},
		}},
		{0, get, "implications/failed", operator, inspect, "", a.debug.listFailedImplications, operation{
			id: "listFailedImplications", about: "Writes that were refused for what they implied", query: paged(),
			gives: rows{"implications", decider.ImplicationFailure{}},
		}},

		// Sagas.
		{0, get, "sagas", operator, inspect, "", a.sagas.listSagas, operation{
			id: "listSagas", about: "The sagas, the newest first", query: pagedSagas(),
			gives: rows{"sagas", wire.Saga{}},
		}},
		{0, get, "sagas/{saga}", operator, inspect, "", a.sagas.getSaga, operation{
			id: "getSaga", about: "A saga with all that has happened to it", gives: wire.SagaDetail{},
		}},
		{0, post, "sagas/{saga}/retry", operator, operate, "saga.retry", a.sagas.retrySaga, operation{
			id: "retrySaga", about: "Let a saga go on that has failed or was given up", gives: wire.SagaDetail{},
		}},

		// Listeners and their deliveries.
		{0, get, "listeners", operator, inspect, "", a.listeners.listListeners, operation{
			id: "listListeners", about: "The listeners of the spec, their secrets and how far they are", query: paged(),
			gives: rows{"listeners", wire.Listener{}},
		}},
		{0, post, "listeners/{name}/pause", operator, operate, "listener.pause", a.listeners.pauseListener, operation{
			id: "pauseListener", about: "Tell a listener nothing more until it is resumed", body: struct{}{},
			optional: true, gives: wire.ListenerChanged{},
		}},
		{0, post, "listeners/{name}/resume", operator, operate, "listener.resume", a.listeners.resumeListener, operation{
			id: "resumeListener", about: "Let a listener go on where it was stopped", body: struct{}{}, optional: true,
			gives: wire.ListenerChanged{},
		}},
		{0, post, "listeners/{name}/rotate_secret", operator, operate, "listener.rotate_secret", a.listeners.rotateListener, operation{
			id: "rotateListenerSecret", about: "Give a listener a new secret", body: struct{}{}, optional: true,
			gives: wire.ListenerChanged{},
		}},
		{0, post, "listeners/{name}/replay", operator, operate, "listener.replay", a.listeners.replayListener, operation{
			id: "replayListener", about: "Tell a listener of events again, or count them", body: wire.ListenerReplay{},
			gives: wire.ListenerReplayed{}, accepted: wire.ListenerReplayed{},
		}},
		{0, post, "listeners/{name}/trigger", operator, operate, "listener.trigger", a.listeners.triggerListener, operation{
			id: "triggerListener", about: "Send a listener a made-up event", body: struct{}{}, optional: true,
			gives: wire.Triggered{},
		}},
		{0, get, "deliveries", operator, inspect, "", a.listeners.listDeliveries, operation{
			id: "listDeliveries", about: "What listeners were told, the newest first", query: pagedDeliveries(),
			gives: rows{"deliveries", wire.Delivery{}},
		}},
		{0, get, "deliveries/{delivery}", operator, inspect, "", a.listeners.getDelivery, operation{
			id: "getDelivery", about: "A delivery and its tries", gives: wire.DeliveryShown{},
		}},
		{0, post, "deliveries/{delivery}/retry", operator, operate, "delivery.retry", a.listeners.retryDelivery, operation{
			id: "retryDelivery", about: "Send the message of a delivery again", body: struct{}{}, optional: true,
			gives: wire.DeliveryShown{},
		}},

		// Events that come later.
		{0, get, "scheduled", operator, inspect, "", a.schedules.listScheduled, operation{
			id: "listScheduled", about: "Events that are to come later, and what became of them, the latest first",
			query: pagedScheduled(), gives: wire.ScheduledEvents{},
		}},
		{0, get, "scheduled/dead_letters", operator, inspect, "", a.schedules.listDeadLetters, operation{
			id: "listDeadLetters", about: "Scheduled events that were given up", query: paged(),
			gives: wire.ScheduledEvents{},
		}},
		{0, get, "scheduled/dead", operator, inspect, "", a.schedules.listDeadLetters, operation{
			id: "listDead", about: "Scheduled events that were given up, as dead_letters", query: paged(),
			gives: wire.ScheduledEvents{},
		}},
		{0, remove, "scheduled/{scheduled_id}", operator, operate, "scheduled.cancel", a.schedules.cancelScheduled, operation{
			id: "cancelScheduled", about: "Cancel a scheduled event", gives: wire.ScheduledEvent{},
		}},
		{0, post, "scheduled/{scheduled_id}/cancel", operator, operate, "scheduled.cancel", a.schedules.cancelScheduled, operation{
			id: "postCancelScheduled", about: "Cancel a scheduled event, as DELETE does", body: struct{}{},
			optional: true, gives: wire.ScheduledEvent{},
		}},
		{0, post, "scheduled/{scheduled_id}/retry", operator, operate, "scheduled.retry", a.schedules.retryScheduled, operation{
			id: "retryScheduled", about: "Try a scheduled event again that was given up or refused", body: struct{}{},
			optional: true, gives: wire.ScheduledEvent{},
		}},

		// Events in files.
		{0, get, "export", operator, need{control.RightAudit, instance}, "", a.exports.export, operation{
			id: "exportEvents", about: "All events, or the states of all aggregates", query: exported(), gives: eventFiles(),
			headers: exportHeader(),
		}},
		{0, post, "import", operator, operate, "events.import", a.imports.importEvents, operation{
			id: "importEvents", about: "Store events that are history", body: eventFiles(), gives: wire.Imported{},
		}},
		{0, post, "import_jsonl", operator, operate, "events.import", a.imports.importEvents, operation{
			id: "importLines", about: "Store events that are history", body: eventFiles(), gives: wire.Imported{},
		}},
		{0, post, "cold_start", operator, operate, "events.cold_start", a.imports.coldStart, operation{
			id: "coldStart", about: "Store history in an environment without events", body: eventFiles(),
			gives: wire.Imported{},
		}},
		{0, post, "inject", operator, operate, "events.inject", a.imports.injectEvents, operation{
			id: "injectEvents", about: "Write test data", body: eventFiles(), gives: wire.Injected{},
		}},
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
		if row.pattern == faultPattern && c.api.audits.faultHere(c) {
			return row.handle(c, w)
		}
		return c.api.forward.forwarded(c, w, c.api.forward.opsPath(c), row.handle)
	}
}

// onWorker passes a request about an instance on to the worker that has it, at a path that the internal listener has for it.
func onWorker(path string, handle handler) handler {
	return func(c *call, w http.ResponseWriter) error {
		return c.api.forward.forwarded(c, w, "/internal/control/instances/"+c.instance+"/"+path, handle)
	}
}

// nodeRoutes are what workers ask of the headnode, and the headnode of workers.
func (a *API) nodeRoutes() []route {
	const prefix = "/internal/control/"
	switch {
	case a.Cluster == nil:
		return nil
	case a.Cluster.Node == "":
		return []route{
			{internalSite, post, prefix + "changes", node, need{}, "", a.nodes.pollChanges, operation{
				id: "pollChanges", about: "Wait for changes of the registry", body: control.Poll{}, gives: control.Update{},
			}},
			{internalSite, post, prefix + "specs", node, need{}, "", a.nodes.putSpecOfWorker, operation{
				id: "putSpec", about: "Store a spec that a worker has accepted", body: control.SpecPut{},
				gives: control.SpecAnswer{},
			}},
			{internalSite, get, prefix + "specs/{instance}/{env}/{version}", node, need{}, "", a.nodes.specOfHeadnode, operation{
				id: "getSpecForWorker", about: "A version of a spec", gives: control.SpecAnswer{},
			}},
			{internalSite, post, prefix + "audit", node, need{}, "", a.nodes.auditOfWorker, operation{
				id: "addRecord", about: "Add a record to the audit log", body: control.Record{},
			}},
		}
	default:
		const path = prefix + "instances/{instance_}/"
		return []route{
			{internalSite, post, path + "spec", node, need{in: instance}, "spec.deploy", a.specs.deploySpec, operation{
				id: "deployOnWorker", about: "Deploy a spec, or try it", query: preparing(deploying()...),
				body: file{typeJSON}, gives: either{wire.Deployed{}, wire.DryRun{}}, anew: wire.Deployed{},
				accepted: wire.SpecPrepared{}, headers: specTag(),
			}},
			{internalSite, post, path + "spec/rollback", node, need{in: instance}, "spec.rollback", a.specs.rollBackSpec, operation{
				id: "rollBackOnWorker", about: "Go back to an earlier version of the spec", query: trying(),
				body: wire.Rollback{}, gives: either{wire.Deployed{}, wire.DryRun{}}, anew: wire.Deployed{}, headers: specTag(),
			}},
			{internalSite, post, path + "spec/promote", node, need{in: instance}, "spec.promote", a.specs.promoteSpec, operation{
				id: "promoteOnWorker", about: "Copy a spec from one environment to another", query: trying(),
				body: wire.Promotion{}, gives: either{wire.Deployed{}, wire.DryRun{}}, anew: wire.Deployed{}, headers: specTag(),
			}},
			{internalSite, get, path + "projections", node, need{in: instance}, "", a.derived.listProjections, operation{
				id: "listProjectionsOfWorker", about: "The projections of an environment", query: inEnvironment(paged()...),
				gives: wire.Projections{},
			}},
			{internalSite, get, path + "backup_settings", node, need{in: instance}, "", a.backups.getBackupSettings, operation{
				id: "getBackupSettingsOfWorker", about: "How backups of an instance are made and kept",
				gives: wire.BackupSettingsShown{},
			}},
			{internalSite, put, path + "backup_settings", node, need{in: instance}, "backup_settings.change", a.backups.changeBackupSettings, operation{
				id: "changeBackupSettingsOfWorker", about: "Change how backups of an instance are made and kept",
				query: tryingPlace(), body: wire.BackupSettingsChange{}, gives: wire.BackupSettingsShown{},
			}},
			{internalSite, get, path + "usage", node, need{in: instance}, "", a.instances.usageDays, operation{
				id: "getUsageOfWorker", about: "What an instance has used, by day", query: span(), gives: wire.Days{},
			}},
			{internalSite, get, path + "month", node, need{in: instance}, "", a.instances.usageMonth, operation{
				id: "getMonthOfWorker", about: "What an instance has used of its plan", gives: wire.Used{},
			}},
			{internalSite, get, prefix + faultPattern, node, need{}, "", a.audits.faultOfWorker, operation{
				id: "getErrorOfWorker", about: "Why a request failed", gives: wire.Failed{},
			}},
			{internalSite, get, prefix + "scrub", node, need{}, "", a.scrubs.getScrub, operation{
				id: "getScrubOfWorker", about: "How far a worker is with looking for damage, and what it has found",
				gives: wire.ScrubShown{},
			}},
			{internalSite, post, prefix + "scrub", node, need{}, "", a.scrubs.beginScrubOfWorker, operation{
				id: "beginScrubOfWorker", about: "Have a worker look for damage now", body: struct{}{}, optional: true,
				gives: wire.ScrubShown{},
			}},
		}
	}
}
