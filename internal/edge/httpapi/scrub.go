package httpapi

import (
	"context"
	"net/http"

	"j17"
	"j17/internal/base/panics"
	"j17/internal/base/wire"
	"j17/internal/custody/scrub"
	"j17/internal/plane/control"
)

// scrubHandlers look for damage in what is stored.
type scrubHandlers struct {
	scrub *scrub.Service
}

// routes are those of looking for damage.
func (h *scrubHandlers) routes() []route {
	operate := need{control.RightOperate, aServer}
	return []route{
		{controlSite, get, "/api/scrub", operator, operate, "", h.getScrub, operation{
			id: "getScrub", about: "Get the progress and the findings of the search for damage",
			gives: wire.ScrubShown{},
		}},
		{controlSite, post, "/api/scrub", operator, operate, "scrub.begin", h.beginScrub, operation{
			id: "beginScrub", about: "Start a search for damage", body: struct{}{}, optional: true,
			gives: wire.ScrubShown{},
		}},
	}
}

// getScrub is GET /api/scrub, and GET /internal/control/scrub of a worker.
func (h *scrubHandlers) getScrub(c *call, w http.ResponseWriter) error {
	nodes, status := h.scrubOfWorkers(c, http.MethodGet), h.scrub.Status()
	return c.answer(w, http.StatusOK, wire.ScrubShown{Scrub: status.Wire(), Nodes: nodes})
}

func (h *scrubHandlers) beginScrub(c *call, w http.ResponseWriter) error {
	if err := c.decodeOptional(w, &struct{}{}); err != nil {
		return err
	}
	h.scrub.Begin()
	c.record("scrub.begin", "", nil)
	nodes, status := h.scrubOfWorkers(c, http.MethodPost), h.scrub.Status()
	return c.answer(w, http.StatusOK, wire.ScrubShown{Scrub: status.Wire(), Nodes: nodes})
}

func (h *scrubHandlers) beginScrubOfWorker(c *call, w http.ResponseWriter) error {
	if err := c.decodeOptional(w, &struct{}{}); err != nil {
		return err
	}
	h.scrub.Begin()
	status := h.scrub.Status()
	return c.answer(w, http.StatusOK, wire.ScrubShown{Scrub: status.Wire()})
}

// scrubOfWorkers asks all workers, where this is their headnode. A worker that does not answer delays the reply only
// briefly.
func (*scrubHandlers) scrubOfWorkers(c *call, method string) []wire.NodeScrub {
	ctx, cancel := context.WithTimeout(c.request.Context(), replicaTime)
	defer cancel()
	nodes := c.api.forward.workers()
	all := make([]wire.NodeScrub, len(nodes))
	var asked panics.Parts
	for i, n := range nodes {
		asked.Go(func() {
			all[i].Node = n.Name
			var shown wire.ScrubShown
			if err := c.api.forward.askShape(ctx, method, n, "/internal/control/scrub", maxScrub, &shown); err != nil {
				all[i].Error = new(err.Error())
				return
			}
			all[i].Scrub = &shown.Scrub
		})
	}
	asked.Wait()
	return all
}

// maxScrub bounds a worker's report of its scrubbing, in bytes: a hundred findings are a fraction of it.
const maxScrub = 1 << 20

// errDamaged is why a server with damaged data is not ready; nil where no damage was found.
func (a *API) errDamaged() error {
	if a.Scrub == nil {
		return nil
	}
	found := a.Scrub.Status().Damaged
	if len(found) == 0 {
		return nil
	}
	return j17.Errorf(j17.CodeUnavailable, "Stored data are damaged, in %s so far. GET /api/scrub, or j17 scrub status, tells where.", j17.Count(len(found), "place"))
}
