package deploy

import (
	"context"
	"encoding/json"

	"j17"
	"j17/internal/base/value"
	"j17/internal/base/wire"
	"j17/internal/base/work"
	"j17/internal/core/engine"
	"j17/internal/core/trial"
	"j17/internal/lang/diag"
	"j17/internal/lang/lint"
	"j17/internal/lang/spec"
)

// maxStateChanges is how many differences between two states are listed with them.
const maxStateChanges = 200

// Check returns all findings of a spec, or of an envelope around it, each with its place in the text. Nothing is stored
// or replayed. The error is that of a context that has ended.
func (s *Service) Check(ctx context.Context, source []byte) (wire.SpecChecked, error) {
	envelope, found := spec.Unwrap(source)
	if len(found) == 0 {
		if err := ctx.Err(); err != nil {
			return wire.SpecChecked{}, err
		}
		_, found = lint.CompileFor(ctx, &envelope)
	}
	if err := ctx.Err(); err != nil {
		return wire.SpecChecked{}, err
	}

	// Findings about the text as a whole are placed at its beginning.
	checked := wire.SpecChecked{Errors: []j17.FieldError{}, Warnings: []j17.FieldError{}}
	for i, f := range diag.FieldErrors(found) {
		f.Line, f.Column = max(f.Line, 1), max(f.Column, 1)
		if found[i].Severity == diag.Error {
			checked.Errors = append(checked.Errors, f)
		} else {
			checked.Warnings = append(checked.Warnings, f)
		}
	}
	checked.Valid = len(checked.Errors) == 0
	return checked, nil
}

// States returns the state of an aggregate under the deployed spec and under another one, after length events, or after
// all if length is nil. Errors are *j17.Errors: CodeInvalidSpec, CodeAggregateNotFound, CodeWorkLimit if there are more
// events than a dry run replays.
func (s *Service) States(
	ctx context.Context, instance string, env j17.Environment, source []byte, named j17.Key, length *uint64,
) (wire.SpecStates, error) {
	var answer wire.SpecStates
	envelope, found := spec.Unwrap(source)
	if len(found) > 0 {
		return answer, invalid(found)
	}
	e, err := s.environment(instance, env)
	if err != nil {
		return answer, err
	}
	compiled, found := lint.CompileFor(ctx, &envelope)
	if err := ctx.Err(); err != nil {
		return answer, err
	}
	if compiled == nil {
		return answer, invalid(found)
	}
	e.mu.Lock()
	_, loaded, err := s.prepare(
		ctx, e, Request{Instance: instance, Environment: env, Aggregates: 1, Lenient: true}, compiled, found,
	)
	before := deployed{e.compiled, e.code}
	e.mu.Unlock()
	if err != nil {
		return answer, err
	}

	// Which events.
	key, err := s.engine.Key(ctx, e.tenant, named.Type, named.ID)
	if err != nil {
		return answer, err
	}
	all, err := s.engine.Length(ctx, e.tenant, key.Type, key.ID)
	if err != nil {
		return answer, err
	}
	if length != nil {
		all = min(all, *length)
	}
	if all == 0 {
		return answer, j17.Errorf(j17.CodeAggregateNotFound, "Aggregate not found")
	}
	if all > maxReplayed {
		return answer, j17.Errorf(j17.CodeWorkLimit, "The aggregate has more than %d events, which are too many to replay. Ask for an earlier length.", maxReplayed)
	}

	// Both states.
	was, why, err := s.state(ctx, e.tenant, before, key, all)
	if err != nil {
		return answer, err
	}
	is, whyNot, err := s.state(ctx, e.tenant, deployed{compiled, loaded}, key, all)
	if err != nil {
		return answer, err
	}
	answer.Now, answer.Then, answer.Error, answer.Changes = shown(was, all), shown(is, all), why, []wire.ValueChange{}
	if whyNot != "" {
		answer.Error = whyNot
	}
	if answer.Now != nil && answer.Then != nil {
		found, more, err := trial.Differences(was, is, maxStateChanges, work.New(ctx, work.Command))
		if err != nil {
			return answer, err
		}
		answer.Changes, answer.More = append(answer.Changes, found...), more
	}
	return answer, nil
}

// state returns the state of an aggregate under a spec, or why there is none.
func (s *Service) state(
	ctx context.Context, t j17.Tenant, under deployed, key j17.Key, length uint64,
) (_ value.Value, why string, _ error) {
	if under.compiled == nil || under.compiled.Types[key.Type] == nil {
		return value.Value{}, "The spec has no aggregate type '" + key.Type + "'.", nil
	}
	state, err := s.engine.Replay(ctx, t, under.compiled, under.code.functions, key, length, engine.Replayed{})
	if why, ok := codeError(err); ok {
		return value.Value{}, why, nil
	}
	return state, "", err
}

func shown(state value.Value, length uint64) *wire.SpecState {
	if state.IsMissing() {
		return nil
	}
	return &wire.SpecState{Length: length, Data: json.RawMessage(state.AppendJSON(nil))}
}
