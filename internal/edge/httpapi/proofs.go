package httpapi

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"strconv"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/core/engine"
	"j17/internal/custody/envlog"
	"j17/internal/custody/proof"
	"j17/internal/plane/control"
	"j17/internal/storage/store"
)

// proofHandlers prove that events are those that were stored.
type proofHandlers struct {
	engine *engine.Engine
	logs   *envlog.Service
	store  Storage
}

// routes prove that events are those that were stored.
func (h *proofHandlers) routes() []route {
	return []route{
		{dataSite, get, "/{type}/{id}/audit/merkle-root", read, need{}, "", h.streamRoot, operation{
			id: "getMerkleRoot", about: "Get the root of the tree over the events of an aggregate",
			gives: wire.StreamRoot{}, alike: true,
		}},
		{dataSite, get, "/{type}/{id}/audit/merkle-proof/{index}", read, need{}, "", h.streamProof, operation{
			id: "getMerkleProof", about: "Prove that the tree includes an event", gives: wire.InclusionProof{},
			alike: true,
		}},
		{dataSite, get, "/{type}/{id}/audit/verify-chain", read, need{}, "", h.verifyChain, operation{
			id: "verifyChain", about: "Verify the chain over the events of an aggregate",
			gives: wire.ChainCheck{}, alike: true,
		}},
		{dataSite, post, "/{type}/{id}/audit/merkle-verify", read, need{}, "", h.verifyProofOfStream, operation{
			id: "verifyMerkleProof", about: "Verify a proof", body: wire.InclusionCheck{},
			gives: wire.Validity{}, alike: true,
		}},
		{dataSite, get, "/_audit/checkpoint", read, need{}, "", h.logCheckpoint, operation{
			id: "getCheckpointOfLog", about: "Get the signed head of the environment's log", gives: file{typeText},
		}},
		{dataSite, get, "/_audit/keys", read, need{}, "", h.logKeys, operation{
			id: "listLogKeys", about: "List the public keys of the environment's log", gives: wire.LogKeys{},
		}},
		{dataSite, get, "/_audit/proof/inclusion", read, need{}, "", h.logInclusion, operation{
			id: "getInclusionProof", about: "Prove that the environment's log includes an event", query: included(),
			gives: wire.InclusionProof{},
		}},
		{dataSite, get, "/_audit/proof/consistency", read, need{}, "", h.logConsistency, operation{
			id: "getConsistencyProof", about: "Prove that the environment's log has only grown",
			query: consistent(), gives: wire.ConsistencyProof{},
		}},
	}
}

// adminRoutes are those of the administration of an environment.
func (h *proofHandlers) adminRoutes() []route {
	audit := need{control.RightAudit, instance}
	return []route{
		{0, get, "audit/merkle-root/{type}/{id}", operator, audit, "", h.streamRoot, operation{
			id: "getMerkleRootOf", about: "Get the root of the tree over the events of an aggregate",
			gives: wire.StreamRoot{}, tagged: true,
		}},
		{0, get, "audit/merkle-proof/{type}/{id}/{index}", operator, audit, "", h.streamProof, operation{
			id: "getMerkleProofOf", about: "Prove that the tree includes an event", gives: wire.InclusionProof{},
			tagged: true,
		}},
		{0, get, "audit/verify-chain/{type}/{id}", operator, audit, "", h.verifyChain, operation{
			id: "verifyChainOf", about: "Verify the chain over the events of an aggregate",
			gives: wire.ChainCheck{}, tagged: true,
		}},
		{0, post, "audit/merkle-verify", operator, audit, "", h.verifyProof, operation{
			id: "verifyMerkleProofOf", about: "Verify a proof", body: wire.InclusionCheck{},
			gives: wire.Validity{},
		}},
		{0, get, "audit/checkpoint", operator, audit, "", h.logCheckpoint, operation{
			id: "getCheckpointOfLogOf", about: "Get the signed head of the environment's log", gives: file{typeText}, tagged: true,
		}},
		{0, get, "audit/proof/inclusion", operator, audit, "", h.logInclusion, operation{
			id: "getInclusionProofOf", about: "Prove that the environment's log includes an event", query: included(),
			gives: wire.InclusionProof{}, tagged: true,
		}},
		{0, get, "audit/proof/consistency", operator, audit, "", h.logConsistency, operation{
			id: "getConsistencyProofOf", about: "Prove that the environment's log has only grown",
			query: consistent(), gives: wire.ConsistencyProof{}, tagged: true,
		}},
		// The keys are public. They are for operators who may see the instance, be it to audit it or to check the
		// certificates of erasures.
		{0, get, "audit/keys", operator, need{control.RightView, instance}, "", h.logKeys, operation{
			id: "listLogKeysOf", about: "List the public keys of the environment's log", gives: wire.LogKeys{}, tagged: true,
		}},
		{
			0, post, "audit/keys/rotate", operator,
			need{control.RightManage, instance},
			"audit_key.rotate",
			h.rotateLogKey,
			operation{
				id: "rotateLogKey", about: "Rotate the key that signs the environment's log", body: struct{}{}, optional: true,
				gives: wire.LogKeyMade{}, made: true,
			},
		},
	}
}

// typeText is the media type of signed notes and of documentation.
const typeText = "text/plain"

// included are the parameters of a proof that an event is in the log.
func included() []parameter {
	return []parameter{
		{name: "index", kind: whole, about: "The number of the event, counted from 0."},
		{name: "stream_id", about: "The stream_id of the event, instead of its number."},
		{name: "size", kind: whole, least: 1, about: "The number of events in the tree; by default all."},
	}
}

// consistent are the parameters of a proof that the log has only grown.
func consistent() []parameter {
	return []parameter{
		{name: "from", kind: whole, least: 1, about: "The number of events in the smaller tree."},
		{name: "to", kind: whole, least: 1, about: "The number of events in the larger tree; by default all."},
	}
}

// streamKey returns the key of the aggregate that the path names, which has events.
func (h *proofHandlers) streamKey(c *call) (j17.Key, error) {
	ctx, typ, id := c.request.Context(), c.request.PathValue("type"), c.request.PathValue("id")
	key, err := h.engine.Key(ctx, c.tenant, typ, id)
	if err != nil {
		return key, err
	}
	heads, err := h.store.Heads(ctx, c.tenant, []j17.Key{key})
	if err != nil {
		return key, store.UserError(err)
	}
	if heads[0].Length == 0 {
		return key, j17.Errorf(j17.CodeAggregateNotFound, "Aggregate not found: it has no events, so there is nothing to prove")
	}
	return key, nil
}

func (h *proofHandlers) streamRoot(c *call, w http.ResponseWriter) error {
	of, err := h.wholeStream(c)
	if err != nil {
		return err
	}
	if of.Bad != nil {
		return j17.Errorf(j17.CodeCorruption, "The events of this aggregate are damaged: %s. Restore them from a backup.", of.Bad)
	}
	return h.proved(c, w, wire.StreamRoot{Root: hex.EncodeToString(of.Root[:]), Size: of.Length})
}

// wholeStream computes the tree and the chain of the aggregate that the path names.
func (h *proofHandlers) wholeStream(c *call) (envlog.Stream, error) {
	key, err := h.streamKey(c)
	if err != nil {
		return envlog.Stream{}, err
	}
	of, err := h.logs.Stream(c.request.Context(), c.tenant, key)
	return of, store.UserError(err)
}

func (h *proofHandlers) streamProof(c *call, w http.ResponseWriter) error {
	index, err := strconv.ParseUint(c.request.PathValue("index"), 10, 63)
	if err != nil {
		return j17.Errorf(j17.CodeInvalidParameter, "The index of an event in its stream must be a whole number from 0 on").At("index")
	}
	key, err := h.streamKey(c)
	if err != nil {
		return err
	}
	p, err := h.logs.StreamProof(c.request.Context(), c.tenant, key, index)
	if errors.Is(err, envlog.ErrBeyond) {
		return j17.Errorf(j17.CodeNotFound, "The aggregate does not have so many events; the first one has the index 0").At("index")
	}
	if err != nil {
		return store.UserError(err)
	}
	return h.proved(c, w, p.Wire())
}

func (h *proofHandlers) verifyChain(c *call, w http.ResponseWriter) error {
	of, err := h.wholeStream(c)
	if err != nil {
		return err
	}
	shape := wire.ChainCheck{Valid: of.Bad == nil, Length: of.Length, Head: hex.EncodeToString(of.Head[:])}
	if of.Bad != nil {
		shape.Problem = of.Bad.Error()
	}
	return h.proved(c, w, shape)
}

func (h *proofHandlers) verifyProofOfStream(c *call, w http.ResponseWriter) error {
	if _, err := h.streamKey(c); err != nil {
		return err
	}
	return h.verifyProof(c, w)
}

// verifyProof is POST audit/merkle-verify: pure arithmetic.
func (*proofHandlers) verifyProof(c *call, w http.ResponseWriter) error {
	var body wire.InclusionCheck
	if err := c.decode(w, &body); err != nil {
		return err
	}
	if *body.Size == 0 {
		return j17.Errorf(j17.CodeInvalidField, "'size' must be a whole number from 1 on: a tree without leaves proves nothing").At("size")
	}
	leaf, err := hashOf("leaf_hash", *body.LeafHash)
	if err != nil {
		return err
	}
	root, err := hashOf("root", *body.Root)
	if err != nil {
		return err
	}
	path := make([][sha256.Size]byte, len(*body.Proof))
	for i, text := range *body.Proof {
		if path[i], err = hashOf("proof["+strconv.Itoa(i)+"]", text); err != nil {
			return err
		}
	}
	return c.answer(w, http.StatusOK, wire.Validity{
		Valid: proof.CheckInclusion(*body.Index, *body.Size, leaf, path, root),
	})
}

// hashOf reads a hash in a member of a body.
func hashOf(name, text string) (hash [sha256.Size]byte, err error) {
	if len(text) == hex.EncodedLen(sha256.Size) {
		if _, err = hex.Decode(hash[:], []byte(text)); err == nil {
			return hash, nil
		}
	}
	return hash, j17.Errorf(j17.CodeInvalidField, "'%s' must be 64 hexadecimal digits", name).At(name)
}

func (h *proofHandlers) logCheckpoint(c *call, w http.ResponseWriter) error {
	if err := h.logReady(c); err != nil {
		return err
	}
	signed, err := h.logs.Checkpoint(c.request.Context(), c.tenant)
	if err != nil {
		return store.UserError(err)
	}
	if known, err := c.known(w, digestTag([]byte(signed))); known || err != nil {
		return err
	}
	c.show(w.Header(), "Content-Type", typeText+"; charset=utf-8")
	c.write(w, http.StatusOK, []byte(signed))
	return nil
}

func (h *proofHandlers) logKeys(c *call, w http.ResponseWriter) error {
	keys, err := h.logs.Keys(c.request.Context(), c.tenant)
	if err != nil {
		return store.UserError(err)
	}
	return h.proved(c, w, wire.LogKeys{Keys: wire.Each(keys, (*envlog.Key).Wire)})
}

func (h *proofHandlers) logInclusion(c *call, w http.ResponseWriter) error {
	index, byIndex := c.query["index"]
	id, byID := c.query["stream_id"]
	if byIndex == byID {
		return j17.Errorf(j17.CodeInvalidParameter, "Say which event is to be proved, by 'index' or by 'stream_id', not both").At("index")
	}
	if err := h.logReady(c); err != nil {
		return err
	}

	ctx := c.request.Context()
	var p envlog.Inclusion
	var err error
	if byIndex {
		n, _ := strconv.ParseUint(index, 10, 63) // checked
		p, err = h.logs.Include(ctx, c.tenant, n, h.sizeOf(c, "size"))
	} else {
		at, failed := j17.ParseStreamID(id)
		if failed != nil {
			return j17.Errorf(j17.CodeNotFound, "The environment has no event with this stream_id").At("stream_id")
		}
		p, err = h.logs.IncludeEvent(ctx, c.tenant, at, h.sizeOf(c, "size"))
	}
	if errors.Is(err, envlog.ErrBeyond) {
		return j17.Errorf(j17.CodeNotFound, "There is no such event in the log, or not in a tree of that size, or the log is not that large. GET /_audit/checkpoint tells how large it is.")
	}
	if err != nil {
		return store.UserError(err)
	}
	return h.proved(c, w, p.Wire())
}

func (h *proofHandlers) logConsistency(c *call, w http.ResponseWriter) error {
	from, to := h.sizeOf(c, "from"), h.sizeOf(c, "to")
	switch {
	case from == nil:
		return j17.Errorf(j17.CodeInvalidParameter, "'from' must be given: how many events the smaller tree has").At("from")
	case to != nil && *from > *to:
		return j17.Errorf(j17.CodeInvalidParameter, "'from' must not be greater than 'to'").At("from")
	}
	if err := h.logReady(c); err != nil {
		return err
	}
	p, err := h.logs.Extend(c.request.Context(), c.tenant, *from, to)
	if errors.Is(err, envlog.ErrBeyond) {
		return j17.Errorf(j17.CodeNotFound, "The log is not that large. GET /_audit/checkpoint tells how large it is.")
	}
	if err != nil {
		return store.UserError(err)
	}
	return h.proved(c, w, wire.ConsistencyProof{
		From: p.From, To: p.To, Proof: wire.Hexes(p.Proof), FromRoot: hex.EncodeToString(p.FromRoot[:]),
		ToRoot: hex.EncodeToString(p.ToRoot[:]),
	})
}

func (h *proofHandlers) rotateLogKey(c *call, w http.ResponseWriter) error {
	if err := c.decodeOptional(w, &struct{}{}); err != nil {
		return err
	}
	key, err := h.logs.Rotate(c.request.Context(), c.tenant)
	if errors.Is(err, envlog.ErrKeys) {
		return j17.Errorf(j17.CodeConflict, "The log of this environment has had too many keys to get another one.")
	}
	if err != nil {
		return store.UserError(err)
	}
	c.record("audit_key.rotate", key.VKey, nil)
	return c.answer(w, http.StatusCreated, wire.LogKeyMade{Key: key.Wire()})
}

// mostBehind is how many events a log may be behind for a request to wait until it has caught up.
const mostBehind = 1 << 20

// logReady returns an error while the log of the environment is more events behind than a request waits for, as after
// an upgrade.
func (h *proofHandlers) logReady(c *call) error {
	behind, err := h.logs.Behind(c.request.Context(), c.tenant)
	if err != nil {
		return store.UserError(err)
	}
	if behind > mostBehind {
		return j17.Errorf(j17.CodeStateNotReady, "The log of this environment is being made: %d of its events are not in it yet. Try again in a moment.", behind)
	}
	return nil
}

// sizeOf returns a whole number of the query, nil where it is not given.
func (*proofHandlers) sizeOf(c *call, name string) *uint64 {
	v, ok := c.query[name]
	if !ok {
		return nil
	}
	n, _ := strconv.ParseUint(v, 10, 63) // checked
	return &n
}

// proved answers with a proof, or with a part of one.
func (*proofHandlers) proved(c *call, w http.ResponseWriter, shape any) error {
	raw, err := marshal(shape)
	if err != nil {
		return err
	}
	return c.page(w, append([]byte(`{"ok":true,`), raw[1:]...))
}
