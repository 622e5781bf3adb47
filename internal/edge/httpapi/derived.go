package httpapi

import (
	"context"
	"net/http"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/derived/build"
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
}

// listProjections is GET projections.
func (h *derivedHandlers) listProjections(c *call, w http.ResponseWriter) error {
	c.inEnvironment()
	all, err := h.projections.DescribeAll(c.request.Context(), c.tenant)
	if err != nil {
		return err
	}
	l := c.listing()
	page := wire.Projections{Projections: portion(all, l), Environment: c.env}
	if len(page.Projections) > l.limit {
		page.Projections, page.Next = page.Projections[:l.limit], new(l.offset+l.limit)
	}
	if page.Projections == nil {
		page.Projections = []wire.Projection{}
	}
	return c.answer(w, http.StatusOK, page)
}

// getProjection is GET projections/{name}.
func (h *derivedHandlers) getProjection(c *call, w http.ResponseWriter) error {
	p, err := h.projections.Describe(c.request.Context(), c.tenant, c.request.PathValue("name"))
	if err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, p)
}

// maxDefinitionBody is the size of the text of a definition with what may stand around it, as it comes from an editor: as large as that of a spec.
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
	h.recordProjection(c, "projection.deploy", posted.Name)
	status := http.StatusOK
	switch {
	case posted.Build != nil && posted.Build.Prepared != nil:
		status = http.StatusAccepted
	case posted.Created:
		status = http.StatusCreated
	}
	return c.answer(w, status, posted)
}

// rebuildProjection is POST projections/{name}/rebuild.
func (h *derivedHandlers) rebuildProjection(c *call, w http.ResponseWriter) error {
	var none struct{}
	if err := c.decodeOptional(w, &none); err != nil {
		return err
	}
	ctx, name := context.WithoutCancel(c.request.Context()), c.request.PathValue("name")
	if err := h.projections.Rebuild(ctx, c.tenant, name); err != nil {
		return err
	}
	h.recordProjection(c, "projection.rebuild", name)
	p, err := h.projections.Describe(ctx, c.tenant, name)
	if err != nil {
		return err
	}
	return c.answer(w, http.StatusAccepted, p)
}

// cancelBuild is DELETE projections/{name}/build.
func (h *derivedHandlers) cancelBuild(c *call, w http.ResponseWriter) error {
	name := c.request.PathValue("name")
	if err := h.projections.CancelBuild(c.request.Context(), c.tenant, name); err != nil {
		return err
	}
	h.recordProjection(c, "projection.cancel_build", name)
	return c.answer(w, http.StatusOK, nil)
}

// verifyProjection is POST projections/{name}/verify.
func (h *derivedHandlers) verifyProjection(c *call, w http.ResponseWriter) error {
	var none struct{}
	if err := c.decodeOptional(w, &none); err != nil {
		return err
	}
	c.allowTime(w, transferTime)
	found, err := h.projections.Verify(c.request.Context(), c.tenant, c.request.PathValue("name"))
	if err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, found)
}

// removeProjection is DELETE projections/{name}.
func (h *derivedHandlers) removeProjection(c *call, w http.ResponseWriter) error {
	name := c.request.PathValue("name")
	if err := h.projections.Remove(c.request.Context(), c.tenant, name); err != nil {
		return err
	}
	h.recordProjection(c, "projection.remove", name)
	return c.answer(w, http.StatusOK, nil)
}

// recordProjection adds what was done to a projection to the audit log.
func (*derivedHandlers) recordProjection(c *call, action, name string) {
	record := control.Record{Action: action, Instance: c.instance, Environment: c.env, Target: name}
	c.record(record)
}

// describePlaces is GET places.
func (h *derivedHandlers) describePlaces(c *call, w http.ResponseWriter) error {
	all, under, err := h.places.Describe(c.request.Context(), c.tenant)
	if err != nil {
		return err
	}
	answer := wire.Places{Places: []wire.PlacesOfKind{}}
	for _, d := range all {
		kind := wire.PlacesOfKind{Type: d.Type, Geo: d.Geo, Shape: d.Shape, Status: "ready"}
		if !d.Ready {
			kind.Status = "building"
		}
		if d.Build != nil {
			kind.Build = &wire.Build{Status: string(d.Build.State), Error: d.Build.Error, Done: d.Build.Done, Total: d.Build.Total}
		}
		answer.Places = append(answer.Places, kind)
	}
	if under != nil {
		answer.Verification = &wire.Verification{Done: under.Done, Total: under.Total}
	}
	return c.answer(w, http.StatusOK, answer)
}

// verifyPlaces is POST places/verify.
func (h *derivedHandlers) verifyPlaces(c *call, w http.ResponseWriter) error {
	var none struct{}
	if err := c.decodeOptional(w, &none); err != nil {
		return err
	}
	c.allowTime(w, transferTime)
	found, err := h.places.Verify(c.request.Context(), c.tenant)
	if err != nil {
		return err
	}
	answer := wire.VerifiedPlaces{Verified: found.Difference == nil, Position: found.Position.PositionText(), Aggregates: found.Aggregates, Entries: found.Entries}
	if d := found.Difference; d != nil {
		answer.Difference = &wire.PlaceDifference{Type: d.Type, ID: d.ID, Geo: d.Geo, What: d.What}
	}
	return c.answer(w, http.StatusOK, answer)
}

// listTags is GET tags.
func (h *derivedHandlers) listTags(c *call, w http.ResponseWriter) error {
	all, err := h.tagging.Tags(c.request.Context(), c.tenant)
	if err != nil {
		return err
	}
	out := wire.Tags{Tags: make([]wire.DeclaredTag, len(all)), Environment: c.env}
	for i, tag := range all {
		out.Tags[i] = wire.DeclaredTag{Name: tag.Name, AggregateTypes: tag.Types, Status: "ready"}
		if !tag.Ready {
			out.Tags[i].Status, out.Tags[i].Build = "building", &wire.Build{Status: "running", Done: tag.Done, Total: tag.Total}
		}
	}
	return c.answer(w, http.StatusOK, out)
}
