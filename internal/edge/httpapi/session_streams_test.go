package httpapi_test

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"j17/internal/plane/control"
	"j17/internal/storage/testopen"
)

// TestStreamsEndWithTheirSession opens streams with the cookie of a session, and ends what let them in: each stream
// ends within a second, those of others go on.
func TestStreamsEndWithTheirSession(t *testing.T) {
	const other = "another long password"
	for name, end := range map[string]func(t *testing.T, p *plane, op control.Operator, cookie string){
		"sign-out": func(t *testing.T, p *plane, _ control.Operator, cookie string) {
			t.Helper()
			if got := p.browse(t, "DELETE", "/api/session", "", cookie, ofPage); got.status != 200 {
				t.Error(got.status, got.body)
			}
		},
		"an end from elsewhere": func(t *testing.T, p *plane, op control.Operator, _ string) {
			t.Helper()
			if err := p.registry.Sessions.End(t.Context(), op.ID, p.registry.Sessions.List(op.ID)[0].ID); err != nil {
				t.Error(err)
			}
		},
		"as many others": func(t *testing.T, p *plane, op control.Operator, _ string) {
			t.Helper()
			for range control.MaxSessions {
				p.clock.Advance(time.Second)
				if _, _, err := p.registry.Sessions.Begin(t.Context(), op, p.clock.Now(), "192.0.2.7"); err != nil {
					t.Error(err)
				}
			}
		},
		"a password of one's own": func(t *testing.T, p *plane, _ control.Operator, cookie string) {
			t.Helper()
			got := p.browse(
				t, "POST", "/api/me/password", `{"current_password":"`+testPassword+`","new_password":"`+other+`"}`,
				cookie, ofPage,
			)
			if got.status != 200 {
				t.Error(got.status, got.body)
			}
		},
		"a password that an admin sets": func(t *testing.T, p *plane, op control.Operator, _ string) {
			t.Helper()
			p.must(t, 200, "POST", "/api/operators/"+op.ID+"/password", `{"password":"`+other+`"}`)
		},
		"a role that may not read": func(t *testing.T, p *plane, op control.Operator, _ string) {
			t.Helper()
			p.must(t, 200, "PATCH", "/api/operators/"+op.ID, `{"role":"privacy_officer"}`)
		},
		"the loss of the grant": func(t *testing.T, p *plane, op control.Operator, _ string) {
			t.Helper()
			p.must(t, 200, "DELETE", "/api/operators/"+op.ID+"/grants/"+p.instance.ID, "")
		},
		"tokens that are revoked": func(t *testing.T, p *plane, op control.Operator, _ string) {
			t.Helper()
			p.must(t, 200, "POST", "/api/operators/"+op.ID+"/revoke_tokens", "")
		},
		"the removal of the operator": func(t *testing.T, p *plane, op control.Operator, _ string) {
			t.Helper()
			p.must(t, 200, "DELETE", "/api/operators/"+op.ID, "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			testopen.Bubble(t, func(t *testing.T) {
				p := newPlane(t, nil)
				op := p.operator(t, "op@example.com", control.RoleInstanceAdmin, p.instance.ID)
				cookie := p.signIn(t, "op@example.com")
				pipes, ops := p.serve(t), "/api/instances/"+p.instance.ID+"/ops/prod/"
				by := []string{"Host: control.j17.example", "Authorization: ", "Cookie: " + cookie}
				ended := []*client{
					p.stream(t, pipes, ops+"events/stream", by...),
					p.stream(t, pipes, ops+"aggregates/note/global/events/stream", by...),
				}
				kept := p.stream(
					t, pipes, ops+"events/stream", "Host: control.j17.example", "Authorization: Bearer "+p.admin,
				)
				synctest.Wait()
				end(t, p, op, cookie)
				begin := time.Now()
				for i, c := range ended {
					var err error
					for err == nil {
						_, err = c.next()
					}
					if took := time.Since(begin); took > time.Second || !errors.Is(err, io.EOF) {
						t.Errorf("stream %d has ended after %s with %v", i, took, err)
					}
				}
				go p.write(t, "global/was_written", `{}`)
				_ = kept.event(t)
				_ = kept.conn.Close()
			})
		})
	}
}

// TestStreamsOutliveWhatTheySurvive changes what leaves a session with its rights.
func TestStreamsOutliveWhatTheySurvive(t *testing.T) {
	testopen.Bubble(t, func(t *testing.T) {
		p := newPlane(t, nil)
		op := p.operator(t, "op@example.com", control.RoleInstanceAdmin, p.instance.ID)
		cookie := p.signIn(t, "op@example.com")
		c := p.stream(
			t, p.serve(t), "/api/instances/"+p.instance.ID+"/ops/prod/events/stream", "Host: control.j17.example",
			"Authorization: ", "Cookie: "+cookie,
		)
		p.must(t, 200, "PATCH", "/api/operators/"+op.ID, `{"role":"auditor"}`)
		p.must(t, 200, "POST", "/api/signing_keys/rotate", "")
		p.signIn(t, "op@example.com")
		if _, err := c.next(); err != nil { // the first heartbeat comes long after all streams were asked again
			t.Error(err)
		}
		go p.write(t, "global/was_written", `{}`)
		_ = c.event(t)
		_ = c.conn.Close()
	})
}
