package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"j17"
	"j17/internal/base/panics"
	"j17/internal/base/wire"
	"j17/internal/custody/scrub"
	"j17/internal/plane/control"
)

// scrubHandlers look for damage in what is stored.
type scrubHandlers struct {
	registry *control.Registry
	scrub    *scrub.Service
}

// scrubRoutes are those of looking for damage.
func (a *API) scrubRoutes() []route {
	operate := need{control.RightOperate, aServer}
	return []route{
		{controlSite, get, "/api/scrub", operator, operate, "", a.scrubs.getScrub, operation{
			id: "getScrub", about: "How far the server is with looking for damage, and what it has found",
			gives: wire.ScrubShown{},
		}},
		{controlSite, post, "/api/scrub", operator, operate, "scrub.begin", a.scrubs.beginScrub, operation{
			id: "beginScrub", about: "Look for damage now", body: struct{}{}, optional: true, gives: wire.ScrubShown{},
		}},
	}
}

// getScrub is GET /api/scrub, and GET /internal/control/scrub of a worker.
func (h *scrubHandlers) getScrub(c *call, w http.ResponseWriter) error {
	nodes, status := h.scrubOfWorkers(c, http.MethodGet), h.scrub.Status()
	return c.answer(w, http.StatusOK, wire.ScrubShown{Scrub: status.Wire(), Nodes: nodes})
}

// beginScrub is POST /api/scrub.
func (h *scrubHandlers) beginScrub(c *call, w http.ResponseWriter) error {
	if err := c.decodeOptional(w, &struct{}{}); err != nil {
		return err
	}
	h.scrub.Begin()
	rec := control.Record{Action: "scrub.begin"}
	c.record(rec)
	nodes, status := h.scrubOfWorkers(c, http.MethodPost), h.scrub.Status()
	return c.answer(w, http.StatusOK, wire.ScrubShown{Scrub: status.Wire(), Nodes: nodes})
}

// beginScrubOfWorker is POST /internal/control/scrub. The headnode has it in the audit log.
func (h *scrubHandlers) beginScrubOfWorker(c *call, w http.ResponseWriter) error {
	if err := c.decodeOptional(w, &struct{}{}); err != nil {
		return err
	}
	h.scrub.Begin()
	status := h.scrub.Status()
	return c.answer(w, http.StatusOK, wire.ScrubShown{Scrub: status.Wire()})
}

// scrubOfWorkers asks all workers, where this is their headnode. One that does not answer holds up nobody for long.
func (h *scrubHandlers) scrubOfWorkers(c *call, method string) []wire.NodeScrub {
	if c.api.Cluster == nil || c.api.Cluster.Node != "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.request.Context(), replicaTime)
	defer cancel()
	nodes := h.registry.Nodes.All()
	all := make([]wire.NodeScrub, len(nodes))
	var asked panics.Parts
	for i, n := range nodes {
		asked.Go(func() {
			all[i].Node = n.Name
			shown, err := h.scrubOfWorker(ctx, c, method, n)
			if err != nil {
				all[i].Error = new(err.Error())
				return
			}
			all[i].Scrub = &shown.Scrub
		})
	}
	asked.Wait()
	return all
}

// maxScrub bounds what a worker says of its scrubbing, in bytes: a hundred findings are a fraction of it.
const maxScrub = 1 << 20

func (*scrubHandlers) scrubOfWorker(ctx context.Context, c *call, method string, n control.Node) (shown wire.ScrubShown, err error) {
	resp, err := c.api.forward.askNode(ctx, method, n, "/internal/control/scrub")
	if err != nil {
		return shown, errors.New("the worker does not answer")
	}
	defer func() { _ = resp.Body.Close() }() // read as far as it matters
	if resp.StatusCode != http.StatusOK {
		return shown, fmt.Errorf("the worker answers with status %d: it may be of an older version", resp.StatusCode)
	}
	if json.NewDecoder(http.MaxBytesReader(nil, resp.Body, maxScrub)).Decode(&shown) != nil {
		return shown, errors.New("what the worker answers cannot be read")
	}
	return shown, nil
}

// errDamaged is why a server with damaged data is not ready; nil where none were found.
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

// scrubMetrics shows what the present pass has looked at, and how much damage there is.
func scrubMetrics(a *API, gauge func(name, help string, read func() float64)) {
	if a.Scrub == nil {
		return
	}
	gauge("j17_scrub_damaged", "Places in what is stored that are known to be damaged.", func() float64 { return float64(len(a.Scrub.Status().Damaged)) })
	gauge("j17_scrub_pass", "The number of the pass over everything that is under way, or of the last one.", func() float64 { return float64(a.Scrub.Status().Pass.Number) })
	gauge("j17_scrub_pass_bytes", "Bytes that this pass has looked at.", func() float64 { return float64(a.Scrub.Status().Pass.Bytes) })
	gauge("j17_scrub_pass_events", "Events that this pass has looked at.", func() float64 { return float64(a.Scrub.Status().Pass.Events) })
	gauge("j17_scrub_last_ended_seconds", "When the last pass has come to its end, in Unix seconds; 0 before the first one.", func() float64 {
		if last := a.Scrub.Status().Last; last != nil {
			return float64(last.EndedAt.Unix())
		}
		return 0
	})
}
