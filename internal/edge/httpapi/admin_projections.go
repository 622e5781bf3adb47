package httpapi

import (
	"context"
	"net/http"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/derived/projection"
	"j17/internal/lang/spec"
	"j17/internal/plane/control"
)

// listProjections is GET projections.
func (c *call) listProjections(w http.ResponseWriter) error {
	c.inEnvironment()
	all, err := c.api.Projections.DescribeAll(c.request.Context(), c.tenant)
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
func (c *call) getProjection(w http.ResponseWriter) error {
	p, err := c.api.Projections.Describe(c.request.Context(), c.tenant, c.request.PathValue("name"))
	if err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, p)
}

// maxDefinitionBody is the size of the text of a definition with what may stand around it, as it comes from an editor: as large as that of a spec.
const maxDefinitionBody = spec.MaxSize

// postProjection is POST projections: a definition, or an envelope around it.
func (c *call) postProjection(w http.ResponseWriter) error {
	body, err := c.readBody(w, maxDefinitionBody)
	if err != nil {
		return err
	}
	definition, err := projection.Unwrap(body)
	if err != nil {
		return err
	}
	c.allowTime(w, deployTime)
	posting := projection.Posting{Definition: definition, By: c.principal.ID, Prepare: c.isSet("prepare")}
	if rows, err := c.dryRun(); err != nil {
		return err
	} else if rows > 0 && posting.Prepare {
		return j17.Errorf(j17.CodeInvalidParameter, "prepare is for definitions that are to count, and dry_run=true changes nothing").At("prepare")
	} else if rows > 0 {
		tried, err := c.api.Projections.Try(c.request.Context(), c.tenant, posting, rows)
		if err != nil {
			return err
		}
		return c.answer(w, http.StatusOK, tried)
	}
	posted, err := c.api.Projections.PostDefinition(c.request.Context(), c.tenant, posting)
	if err != nil {
		return err
	}
	c.recordProjection("projection.deploy", posted.Name)
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
func (c *call) rebuildProjection(w http.ResponseWriter) error {
	var none struct{}
	if err := c.decodeOptional(w, &none); err != nil {
		return err
	}
	ctx, name := context.WithoutCancel(c.request.Context()), c.request.PathValue("name")
	if err := c.api.Projections.Rebuild(ctx, c.tenant, name); err != nil {
		return err
	}
	c.recordProjection("projection.rebuild", name)
	p, err := c.api.Projections.Describe(ctx, c.tenant, name)
	if err != nil {
		return err
	}
	return c.answer(w, http.StatusAccepted, p)
}

// cancelBuild is DELETE projections/{name}/build.
func (c *call) cancelBuild(w http.ResponseWriter) error {
	name := c.request.PathValue("name")
	if err := c.api.Projections.CancelBuild(c.request.Context(), c.tenant, name); err != nil {
		return err
	}
	c.recordProjection("projection.cancel_build", name)
	return c.answer(w, http.StatusOK, nil)
}

// verifyProjection is POST projections/{name}/verify.
func (c *call) verifyProjection(w http.ResponseWriter) error {
	var none struct{}
	if err := c.decodeOptional(w, &none); err != nil {
		return err
	}
	c.allowTime(w, transferTime)
	found, err := c.api.Projections.Verify(c.request.Context(), c.tenant, c.request.PathValue("name"))
	if err != nil {
		return err
	}
	return c.answer(w, http.StatusOK, found)
}

// removeProjection is DELETE projections/{name}.
func (c *call) removeProjection(w http.ResponseWriter) error {
	name := c.request.PathValue("name")
	if err := c.api.Projections.Remove(c.request.Context(), c.tenant, name); err != nil {
		return err
	}
	c.recordProjection("projection.remove", name)
	return c.answer(w, http.StatusOK, nil)
}

// recordProjection adds what was done to a projection to the audit log.
func (c *call) recordProjection(action, name string) {
	record := control.Record{Action: action, Instance: c.instance, Environment: c.env, Target: name}
	if err := c.api.Registry.Audit.Add(context.WithoutCancel(c.actorContext()), record); err != nil {
		c.notAudited(action, err)
	}
}
