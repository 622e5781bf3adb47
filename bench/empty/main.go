// Command empty is the yardstick of the HTTP benchmarks: a net/http server whose handler reads the body and answers a fixed
// one.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: empty ADDRESS STATUS BODY")
		os.Exit(2) //nolint:forbidigo // this is a program
	}
	status, body := http.StatusOK, []byte(os.Args[3])
	if os.Args[2] == "201" {
		status = http.StatusCreated
	}
	server := &http.Server{
		Addr:              os.Args[1],
		ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header()["Content-Type"] = []string{"application/json"}
			w.WriteHeader(status)
			_, _ = w.Write(body) //nolint:gosec // the text that the benchmark gave
		}),
	}
	if err := server.ListenAndServe(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:forbidigo // this is a program
	}
}
