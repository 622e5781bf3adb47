package server_test

import (
	"io"
	"net/http"
	"testing"
	"time"
)

// TestStopEndsForwardedStreams stops servers with an open stream: a headnode that passes one on ends it as a server
// does that has the events.
func TestStopEndsForwardedStreams(t *testing.T) {
	for _, through := range []string{"headnode", "worker", "none"} {
		t.Run(through, func(t *testing.T) {
			head := headnode(t)
			worker := start(t, workerOptions(t, "one", head.internal()))
			const ctl = "control.example.test"
			token := head.send(
				t, "POST", ctl, "/api/login", "", `{"email":"`+adminEmail+`","password":"`+adminPass+`"}`,
			).want(t, "login", 200).text1(t, "token")
			id := head.send(t, "POST", ctl, "/api/instances", token, `{"name":"alpha"}`).want(
				t, "create", 201,
			).text1(t, "id")
			head.send(t, "POST", ctl, "/api/instances/"+id+"/spec", token, counterSpec).want(t, "deploy", 201)
			n, host, path := head, ctl, "/api/instances/"+id+"/ops/prod/events/stream"
			if through == "worker" {
				n, host, path = worker, "alpha.example.test", "/_admin/events/stream"
			}
			if through != "none" {
				r, err := http.NewRequestWithContext(
					t.Context(), http.MethodGet, "http://"+n.serve.Ready().Addresses["public"]+path, nil,
				)
				if err != nil {
					t.Fatal(err)
				}
				r.Host = host
				r.Header.Set("Authorization", "Bearer "+token)
				resp, err := (&http.Client{Transport: &http.Transport{}}).Do(r) //nolint:bodyclose // where it is read
				if err != nil || resp.StatusCode != http.StatusOK {
					t.Fatal(err, resp)
				}
				go func() {
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}()
			}
			began := time.Now()
			n.end(t)
			if took := time.Since(began); took > 15*time.Second {
				t.Errorf("it has taken %v to stop", took)
			}
		})
	}
}
