package deploy

import (
	"context"
	"io"
	"log/slog"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"j17"
	"j17/internal/lang/diag"
	"j17/internal/plane/blob"
	"j17/internal/plane/control"
)

// Upload is a blob to be uploaded.
type Upload struct {
	// Instance is the instance's handle.
	Instance    string
	Environment j17.Environment
	Name        string
	// By is the handle of the operator.
	By      string
	Content io.Reader
}

// PutBlob stores a blob and makes the deployed spec use it if the spec asks for the latest version. It reports false if
// the latest version has the same content already. It is a *j17.Error of CodeInvalidBlob if the deployed spec needs
// something of the blob that the new content lacks.
func (s *Service) PutBlob(ctx context.Context, u Upload) (blob.Blob, bool, error) {
	e, err := s.environment(u.Instance, u.Environment)
	if err != nil {
		return blob.Blob{}, false, err
	}
	upload, err := s.blobs.Upload(ctx, e.tenant, u.Name, u.By, u.Content)
	if err != nil {
		return blob.Blob{}, false, err
	}
	b, created, err := s.commit(ctx, e, upload)
	if err != nil {
		upload.Discard(ctx)
		return blob.Blob{}, false, err
	}
	return b, created, nil
}

func (s *Service) commit(ctx context.Context, e *environment, upload *blob.Upload) (blob.Blob, bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := s.catchUp(ctx, e); err != nil { // otherwise it is unknown which blobs are in use
		return blob.Blob{}, false, err
	}
	used, latest := e.code.uses(upload.Name())
	if latest {
		checked, err := s.check(ctx, e, upload)
		if err != nil {
			return blob.Blob{}, false, err
		}
		defer runtime.KeepAlive(checked) // so that nothing has to be compiled again below
	}
	// A stored version is put to use even if the client has gone.
	ctx = context.WithoutCancel(ctx)
	b, created, err := upload.Commit(ctx)
	if err != nil {
		return b, created, err
	}
	if used && (created || e.code.lacks(b)) {
		s.reload(ctx, e)
	}
	if !created {
		return b, false, nil
	}
	s.audit(ctx, control.Record{
		Action: "blob.upload", Instance: e.instance, Environment: e.env, Target: b.Name,
		Details: map[string]string{
			"version": strconv.Itoa(b.Version), "sha256": b.SHA256, "size": strconv.FormatInt(b.Size, 10),
		},
	})
	return b, true, nil
}

// reload loads what the deployed spec refers to now into the engine, and refuses what was decided with earlier
// versions. The caller holds e.mu.
func (s *Service) reload(ctx context.Context, e *environment) {
	loaded, _ := s.load(ctx, e, e.compiled, nil, math.MaxInt64)
	fence, err := s.registry.Specs.Touch(ctx, e.instance, e.env, e.fence)
	if err != nil {
		s.logger.LogAttrs(ctx, slog.LevelWarn, "writes that are under way may still use the former version of a blob",
			slog.String("instance", e.instance), slog.String("environment", string(e.env)), slog.Any("error", err))
	}
	s.swap(e, &control.Spec{Version: e.version, Fence: fence}, e.compiled, loaded)
}

// check reports whether the deployed spec would work with an upload as the latest version of its blob. Code that is
// missing elsewhere does not count.
func (s *Service) check(ctx context.Context, e *environment, upload *blob.Upload) (*code, error) {
	loaded, missing := s.load(ctx, e, e.compiled, upload, maxModules)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var wrong []diag.Diagnostic
	for _, m := range missing {
		for _, b := range e.code.bindings {
			if b.name == upload.Name() && b.pinned == 0 &&
				(m.Pointer == b.use || strings.HasPrefix(string(m.Pointer), string(b.use)+"/")) {
				wrong = append(wrong, m)
				break
			}
		}
	}
	if loaded.large {
		wrong = missing // it is unclear which of them exceeds the limit
	}
	if len(wrong) == 0 {
		return loaded, nil
	}
	err := j17.Errorf(j17.CodeInvalidBlob, "The spec that is deployed to %s uses the latest version of this blob, and could not use this one. Nothing was stored. 'errors' says where.", e.env.LongName())
	err.Errors = diag.FieldErrors(wrong)
	return nil, err
}

// DeleteBlob removes a version of a blob, or all of them if version is 0. It is a *j17.Error of CodeBlobInUse if the
// deployed spec uses one of them.
func (s *Service) DeleteBlob(
	ctx context.Context, instance string, env j17.Environment, name string, version int,
) error {
	e, err := s.environment(instance, env)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := s.catchUp(ctx, e); err != nil {
		return err
	}
	var list diag.List
	for _, b := range e.code.bindings {
		if b.name == name && b.version != 0 && (version == 0 || version == b.version) {
			d := list.Errorf(b.at, "version %d of the blob is used here", b.version)
			d.Line, d.Column = e.compiled.Position(b.at)
		}
	}
	if inUse := list.All(); len(inUse) > 0 {
		err := j17.Errorf(j17.CodeBlobInUse, "The spec that is deployed to %s uses this blob, at %s. Deploy a spec that does not, then delete it.", env.LongName(), inUse[0].Pointer)
		err.Errors = diag.FieldErrors(inUse)
		return err
	}
	if err := s.blobs.Delete(ctx, e.tenant, name, version); err != nil {
		return err
	}
	details := map[string]string{"version": "all"}
	if version != 0 {
		details["version"] = strconv.Itoa(version)
	}
	s.audit(context.WithoutCancel(ctx), control.Record{
		Action: "blob.delete", Instance: e.instance, Environment: e.env, Target: name, Details: details,
	})
	return nil
}

// uses reports whether the code needs a blob, and whether it needs its latest version anywhere.
func (c *code) uses(name string) (somewhere, latest bool) {
	for _, b := range c.bindings {
		somewhere = somewhere || b.name == name
		latest = latest || b.name == name && b.pinned == 0
	}
	return somewhere, latest
}

// lacks reports whether the code needs the latest version of a blob but does not use it yet, since the outcome of a
// commit may be unknown at first.
func (c *code) lacks(latest blob.Blob) bool {
	return slices.ContainsFunc(c.bindings, func(b binding) bool {
		return b.name == latest.Name && b.pinned == 0 && b.version != latest.Version
	})
}

// audit records an action. A failure is only logged, since the action is done.
func (s *Service) audit(ctx context.Context, r control.Record) {
	if err := s.registry.Audit.Add(ctx, r); err != nil {
		s.logger.LogAttrs(
			ctx, slog.LevelError, "an action could not be recorded", slog.String("action", r.Action),
			slog.Any("error", err),
		)
	}
}
