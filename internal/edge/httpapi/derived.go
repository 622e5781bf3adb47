package httpapi

import (
	"context"
	"net/http"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/derived/build"
	"j17/internal/derived/generation"
	"j17/internal/derived/place"
	"j17/internal/derived/projection"
	"j17/internal/lang/spec"
	"j17/internal/plane/control"
)

// derivedHandlers administer what is derived from events: projections, places and tags.
type derivedHandlers struct {
	places      *place.Service
	projections *projection.Service
	tagging     *build.Tagger
	generations *generation.Service
}

// controlRoutes show projections where the environment is a parameter.
func (h *derivedHandlers) controlRoutes() []route {
	view := need{control.RightView, instance}
	return []route{
		{controlSite, get, "/api/instances/{instance_}/projections", operator, view, "", onWorker("projections", h.listProjections), operation{
			id: "listInstanceProjections", about: "List the projections of an environment", query: inEnvironment(paged()...),
			gives: wire.Projections{},
		}},
	}
}

// routes administer projections, places and tags.
func (h *derivedHandlers) routes() []route {
	view, operate, change := need{control.RightView, instance}, need{control.RightOperate, instance},
		need{control.RightDeploy, instance}
	return []route{
		{0, get, "projections", operator, view, "", h.listProjections, operation{
			id: "listProjections", about: "List the projections, both of the spec and posted",
			query: paged(), gives: wire.Projections{},
		}},
		{0, post, "projections", operator, change, "projection.deploy", h.postProjection, operation{
			id: "postProjection", about: "Deploy the definition of a projection beside the spec",
			query: preparing(trying()...), body: file{typeJSON},
			gives: either{wire.PostedProjection{}, wire.ProjectionDryRun{}}, anew: wire.PostedProjection{},
			accepted: wire.PostedProjection{},
		}},
		{0, get, "projections/{name}", operator, view, "", h.getProjection, operation{
			id: "describeProjection", about: "Get a projection, where it is declared and the progress of its index",
			gives: wire.Projection{},
		}},
		{0, remove, "projections/{name}", operator, change, "projection.remove", h.removeProjection, operation{
			id: "removeProjection", about: "Remove a projection that was posted",
		}},
		{0, post, "projections/{name}/rebuild", operator, operate, "projection.rebuild", h.rebuildProjection, operation{
			id: "rebuildProjection", about: "Rebuild the indexes of a projection", body: struct{}{}, optional: true,
			accepted: wire.Projection{},
		}},
		{0, post, "projections/{name}/verify", operator, operate, "projection.verify", h.verifyProjection, operation{
			id: "verifyProjection", about: "Compare the indexes of a projection with the events", body: struct{}{},
			optional: true, gives: wire.VerifiedProjection{},
		}},
		{0, remove, "projections/{name}/build", operator, operate, "projection.cancel_build", h.cancelBuild, operation{
			id: "cancelProjectionBuild", about: "Cancel the index build of a projection",
		}},
		{0, get, "places", operator, view, "", h.describePlaces, operation{
			id: "describePlaces", about: "List the kinds of places, with the progress for older events",
			gives: wire.Places{},
		}},
		{0, post, "places/verify", operator, operate, "place.verify", h.verifyPlaces, operation{
			id: "verifyPlaces", about: "Compare the places of aggregates with the events", body: struct{}{},
			optional: true, gives: wire.VerifiedPlaces{},
		}},
		{0, get, "tags", operator, view, "", h.listTags, operation{
			id: "listTags", about: "List the tags of the spec, with the progress for older events",
			gives: wire.Tags{},
		}},
		{0, get, "generations", operator, need{control.RightInspect, instance}, "", h.listGenerations, operation{
			id: "listGenerations", about: "List the event types with generations, and what is stored of each",
			gives: wire.Generations{},
		}},
		{0, get, "generations/trial", operator, need{control.RightInspect, instance}, "", h.runningTrial, operation{
			id: "getRunningTrial", about: "Say how far the trial of stored events is that runs at the moment",
			gives: wire.RunningTrial{},
		}},
	}
}

func (h *derivedHandlers) listProjections(c *call, w http.ResponseWriter) error {
	c.inEnvironment()
	all, err := h.projections.DescribeAll(c.request.Context(), c.tenant)
	if err != nil {
		return err
	}
	l := c.listing()
	rows, next := cut(portion(all, l), l)
	if rows == nil {
		rows = []wire.Projection{}
	}
	return c.answer(w, http.StatusOK, wire.Projections{Projections: rows, Next: wire.OrNull(next), Environment: c.env})
}

func (h *derivedHandlers) getProjection(c *call, w http.ResponseWriter) error {
	p, err := h.projections.Describe(c.request.Context(), c.tenant, c.request.PathValue("name"))
	return c.done(w, http.StatusOK, p, err)
}

// maxDefinitionBody is the size of the text of a definition with its envelope, as written in an editor: as large as
// that of a spec.
const maxDefinitionBody = spec.MaxSize

// postProjection is POST projections: a definition, or an envelope around it.
func (h *derivedHandlers) postProjection(c *call, w http.ResponseWriter) error {
	body, err := c.readBody(w, maxDefinitionBody)
	if err != nil {
		return err
	}
	definition, err := projection.Unwrap(body)
	if err != nil {
		return err
	}
	c.allowTime(w, deployTime)
	posting := projection.Posting{Definition: definition, By: c.principal.ID, Prepare: c.query.isSet("prepare")}
	if rows, err := dryRunOf(c); err != nil {
		return err
	} else if rows > 0 && posting.Prepare {
		return j17.Errorf(j17.CodeInvalidParameter, "prepare is for definitions that are to count, and dry_run=true changes nothing").At("prepare")
	} else if rows > 0 {
		tried, err := h.projections.Try(c.request.Context(), c.tenant, posting, rows)
		if err != nil {
			return err
		}
		return c.answer(w, http.StatusOK, tried)
	}
	posted, err := h.projections.PostDefinition(c.request.Context(), c.tenant, posting)
	if err != nil {
		return err
	}
	c.record("projection.deploy", posted.Name, nil)
	status := http.StatusOK
	switch {
	case posted.Build != nil && posted.Build.Prepared != nil:
		status = http.StatusAccepted
	case posted.Created:
		status = http.StatusCreated
	}
	return c.answer(w, status, posted)
}

func (h *derivedHandlers) rebuildProjection(c *call, w http.ResponseWriter) error {
	if err := c.decodeOptional(w, &struct{}{}); err != nil {
		return err
	}
	ctx, name := context.WithoutCancel(c.request.Context()), c.request.PathValue("name")
	if err := h.projections.Rebuild(ctx, c.tenant, name); err != nil {
		return err
	}
	c.record("projection.rebuild", name, nil)
	p, err := h.projections.Describe(ctx, c.tenant, name)
	return c.done(w, http.StatusAccepted, p, err)
}

func (h *derivedHandlers) cancelBuild(c *call, w http.ResponseWriter) error {
	name := c.request.PathValue("name")
	if err := h.projections.CancelBuild(c.request.Context(), c.tenant, name); err != nil {
		return err
	}
	c.record("projection.cancel_build", name, nil)
	return c.answer(w, http.StatusOK, nil)
}

func (h *derivedHandlers) verifyProjection(c *call, w http.ResponseWriter) error {
	if err := c.decodeOptional(w, &struct{}{}); err != nil {
		return err
	}
	c.allowTime(w, transferTime)
	found, err := h.projections.Verify(c.request.Context(), c.tenant, c.request.PathValue("name"))
	return c.done(w, http.StatusOK, found, err)
}

func (h *derivedHandlers) removeProjection(c *call, w http.ResponseWriter) error {
	name := c.request.PathValue("name")
	if err := h.projections.Remove(c.request.Context(), c.tenant, name); err != nil {
		return err
	}
	c.record("projection.remove", name, nil)
	return c.answer(w, http.StatusOK, nil)
}

func (h *derivedHandlers) describePlaces(c *call, w http.ResponseWriter) error {
	all, err := h.places.Describe(c.request.Context(), c.tenant)
	return c.done(w, http.StatusOK, all, err)
}

func (h *derivedHandlers) verifyPlaces(c *call, w http.ResponseWriter) error {
	if err := c.decodeOptional(w, &struct{}{}); err != nil {
		return err
	}
	c.allowTime(w, transferTime)
	found, err := h.places.Verify(c.request.Context(), c.tenant)
	return c.done(w, http.StatusOK, found, err)
}

func (h *derivedHandlers) listTags(c *call, w http.ResponseWriter) error {
	all, err := h.tagging.Tags(c.request.Context(), c.tenant)
	return c.done(w, http.StatusOK, wire.Tags{Tags: all, Environment: c.env}, err)
}

// listGenerations is GET generations. It may have to look at many events that came since they were counted last.
func (h *derivedHandlers) listGenerations(c *call, w http.ResponseWriter) error {
	c.allowTime(w, deployTime)
	all, err := h.generations.List(c.request.Context(), c.tenant)
	return c.done(w, http.StatusOK, all, err)
}

func (h *derivedHandlers) runningTrial(c *call, w http.ResponseWriter) error {
	return c.answer(w, http.StatusOK, wire.RunningTrial{Build: h.generations.Running(c.tenant)})
}
