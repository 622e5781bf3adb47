package httpapi

import (
	"net/http"

	"j17/internal/base/wire"
	"j17/internal/custody/erasure"
	"j17/internal/plane/control"
	"j17/internal/storage/store"
)

// tombstoneHandlers administer the erasure of personal data.
type tombstoneHandlers struct {
	erasures *erasure.Service
}

// routes are those of the erasure of personal data. The names of aggregates are no parameter called {id}, since the
// audit log must not have them.
func (h *tombstoneHandlers) routes() []route {
	view, erase := need{control.RightView, instance}, need{control.RightErase, instance}
	return []route{
		{0, post, "tombstone/{type}/{aggregate}", operator, erase, erasure.ActionCreate, h.createTombstone, operation{
			id: "createTombstone", about: "Request the erasure of an aggregate, or preview its extent",
			query: tombstoned(), body: wire.NewTombstone{}, optional: true, gives: wire.TombstoneDryRun{},
			anew: wire.TombstoneShown{},
		}},
		{0, get, "tombstones", operator, view, "", h.listTombstones, operation{
			id: "listTombstones", about: "List the tombstones, newest first", query: pagedTombstones(),
			gives: wire.Tombstones{},
		}},
		{0, get, "tombstones/{tombstone}", operator, view, "", h.getTombstone, operation{
			id: "getTombstone", about: "Get a tombstone and its progress", gives: wire.TombstoneShown{},
		}},
		{0, get, "tombstones/{tombstone}/streams", operator, view, "", h.listTombstoneStreams, operation{
			id: "listTombstoneStreams", about: "List all streams that an erasure covers",
			query: []parameter{limited(), cursor()}, gives: wire.AffectedStreams{},
		}},
		{0, get, "tombstones/{tombstone}/certificate", operator, view, "", h.getCertificate, operation{
			id: "getCertificate", about: "Get the signed certificate of an erasure", gives: file{"text/plain"},
		}},
		{0, remove, "tombstones/{tombstone}", operator, erase, erasure.ActionCancel, h.cancelTombstone, operation{
			id: "cancelTombstone", about: "Cancel a tombstone that is pending", gives: wire.TombstoneShown{},
		}},
		{
			0, post, "tombstones/{tombstone}/execute", operator, erase, erasure.ActionExecute, h.executeTombstone,
			operation{
				id: "executeTombstone", about: "Carry out an erasure, in the background", query: forced(),
				body: wire.ExecuteTombstone{}, optional: true, accepted: wire.TombstoneShown{},
			},
		},
	}
}

func tombstoned() []parameter {
	return []parameter{{name: "dry_run", kind: flag, about: "Report which streams would be erased, and store nothing."}}
}

func forced() []parameter {
	return []parameter{{name: "force", kind: flag, about: "Carry out the erasure before it is due. The body may have this field instead."}}
}

func pagedTombstones() []parameter {
	return append(paged(), parameter{
		name: "status", kind: choice, choices: words(erasure.Statuses()...), about: "Only tombstones with this status.",
	})
}

func (h *tombstoneHandlers) createTombstone(c *call, w http.ResponseWriter) error {
	var ask wire.NewTombstone
	if err := c.decodeOptional(w, &ask); err != nil {
		return err
	}
	typ, id := c.request.PathValue("type"), c.request.PathValue("aggregate")
	if c.query.isSet("dry_run") {
		tried, err := h.erasures.Try(c.request.Context(), c.tenant, typ, id, ask)
		if err != nil {
			return store.UserError(err)
		}
		return c.answer(w, http.StatusOK, tried)
	}
	made, err := h.erasures.Create(c.actorContext(), c.tenant, typ, id, ask)
	return h.tombstone(c, w, http.StatusCreated, made, err)
}

func (h *tombstoneHandlers) listTombstones(c *call, w http.ResponseWriter) error {
	l := c.listing()
	rows, next, err := h.erasures.List(
		c.request.Context(), c.tenant, erasure.Status(c.query["status"]), l.offset, l.limit,
	)
	return page(c, w, "tombstones", rows, next, store.UserError(err))
}

func (h *tombstoneHandlers) getTombstone(c *call, w http.ResponseWriter) error {
	got, err := h.erasures.Get(c.request.Context(), c.tenant, c.request.PathValue("tombstone"))
	return h.tombstone(c, w, http.StatusOK, got, err)
}

func (h *tombstoneHandlers) listTombstoneStreams(c *call, w http.ResponseWriter) error {
	id := c.request.PathValue("tombstone")
	rows, next, err := h.erasures.Streams(
		c.request.Context(), c.tenant, id, c.query["start"], c.query.number("limit", defaultCount),
	)
	return page(c, w, "streams", rows, next, store.UserError(err))
}

func (h *tombstoneHandlers) getCertificate(c *call, w http.ResponseWriter) error {
	note, err := h.erasures.Certificate(c.request.Context(), c.tenant, c.request.PathValue("tombstone"))
	if err != nil {
		return store.UserError(err)
	}
	c.show(w.Header(), "Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	c.write(w, http.StatusOK, []byte(note))
	return nil
}

func (h *tombstoneHandlers) cancelTombstone(c *call, w http.ResponseWriter) error {
	got, err := h.erasures.Cancel(c.actorContext(), c.tenant, c.request.PathValue("tombstone"))
	return h.tombstone(c, w, http.StatusOK, got, err)
}

func (h *tombstoneHandlers) executeTombstone(c *call, w http.ResponseWriter) error {
	var ask wire.ExecuteTombstone
	if err := c.decodeOptional(w, &ask); err != nil {
		return err
	}
	got, err := h.erasures.Execute(
		c.actorContext(), c.tenant, c.request.PathValue("tombstone"), ask.Force || c.query.isSet("force"),
	)
	return h.tombstone(c, w, http.StatusAccepted, got, err)
}

// tombstone answers with a tombstone.
func (*tombstoneHandlers) tombstone(c *call, w http.ResponseWriter, status int, t wire.Tombstone, err error) error {
	if err != nil {
		return store.UserError(err)
	}
	return c.answer(w, status, wire.TombstoneShown{Tombstone: t})
}
