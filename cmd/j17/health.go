package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"j17/internal/edge/client"
)

const (
	// defaultInternalListen is the internal address of servers that are told nothing else.
	defaultInternalListen = "127.0.0.1:17001"
	// healthTime is how long a server may take to report its health.
	healthTime = 5 * time.Second
	// longestHealth bounds what is read of its answer, in bytes.
	longestHealth = 64 << 10
)

func healthCommand(e *env) *cobra.Command {
	var address, caFile string
	cmd := &cobra.Command{
		Use: "health", Short: "Ask a server whether it is ready, for checks of containers and scripts", Args: noArgs,
		Long: `Ask the server of this machine whether it takes writes: GET /readyz at its internal address, that of J17_INTERNAL_LISTEN or else
` + defaultInternalListen + `. With --url another server is asked, at its internal or its public address.

Exit code 0: it is ready. 1: it is not, or does not answer.`,
		Example: "  j17 health\n  j17 health --url https://control.example.com",
	}
	f := cmd.Flags()
	f.StringVar(&address, "url", "", "`URL` of the server to ask")
	f.StringVar(&caFile, "ca-file", "", "`file` of the authorities whose certificates are trusted (J17_CA_FILE)")

	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		roots, err := trusted(cmp.Or(caFile, e.getenv("J17_CA_FILE")))
		if err != nil {
			return err
		}
		carrier := client.NewTransport(roots, "")
		carrier.DisableKeepAlives = true
		if address == "" {
			host, err := ownAddress(cmp.Or(e.getenv("J17_INTERNAL_LISTEN"), defaultInternalListen))
			if err != nil {
				return usageError{err}
			}
			address = "http://" + host
			if e.getenv("J17_INTERNAL_TLS_CERT") != "" {
				address = "https://" + host
				// Nothing secret is sent, and the certificate is for the name that other nodes use.
				carrier.TLSClientConfig.InsecureSkipVerify = true
			}
		}
		if err := askHealth(cmd.Context(), carrier, address); err != nil {
			return interrupted(cmd.Context(), err)
		}
		_, err = fmt.Fprintf(e.out, "The server at %s is ready.\n", address)
		return err
	}
	return cmd
}

// ownAddress returns the address at which a server that listens at an address is reached from its own machine.
func ownAddress(listen string) (string, error) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil || port == "" || port == "0" {
		return "", fmt.Errorf("J17_INTERNAL_LISTEN is %q, which names no port to ask at: name the server with --url", listen)
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port), nil
}

// askHealth returns nil where the server at an address reports that it is ready, and else an error with its answer, or
// that there was none.
func askHealth(ctx context.Context, carrier *http.Transport, address string) error {
	base, err := client.ParseURL(address)
	if err != nil {
		return usageError{err}
	}
	ctx, cancel := context.WithTimeout(ctx, healthTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base.JoinPath("readyz").String(), nil)
	if err != nil {
		return usageError{err}
	}
	resp, err := (&http.Client{Transport: carrier}).Do(req)
	if err != nil {
		return fmt.Errorf("there is no answer from %s: %w", address, err)
	}
	defer resp.Body.Close() //nolint:errcheck // it is read as far as it is wanted
	if resp.StatusCode == http.StatusOK {
		return nil
	}

	// What a server that is not ready says of itself.
	var said struct {
		Error string `json:"error"`
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, longestHealth))
	if err == nil {
		err = json.Unmarshal(raw, &said)
	}
	if err != nil || said.Error == "" {
		return fmt.Errorf("what answers at %s says with status %d neither that it is ready nor why not", address, resp.StatusCode)
	}
	return fmt.Errorf("the server at %s is not ready: %s", address, plain(said.Error))
}
