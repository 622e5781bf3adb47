package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"j17/internal/base/clock"
	"j17/internal/custody/backup"
	"j17/internal/custody/backup/repository"
	"j17/internal/edge/httpapi"
	"j17/internal/follow/outbound"
	"j17/internal/plane/control"
	"j17/internal/plane/usage"
)

// Role is the part that a server has among several.
type Role string

// The roles. A headnode has the operators, the instances, their keys and specs, and no events; a worker has the events
// of some instances and follows its headnode in everything else.
const (
	RoleAll      Role = "all"
	RoleHeadnode Role = "headnode"
	RoleWorker   Role = "worker"
)

// ServeOptions configures a server for use by others. Check reports mistakes in it.
type ServeOptions struct {
	Options
	Role Role
	// Proxies are TrustedProxies in CIDR notation, or single addresses.
	Proxies []string
	// PlansFile holds plans as a JSON array, beside the built-in ones or in their place.
	PlansFile string
	// Webhook and Mail receive alerts when much of a plan is used up, if they have an address; their secrets are in
	// files.
	Webhook           usage.WebhookOptions
	WebhookSecretFile string
	Mail              usage.MailOptions
	MailPasswordFile  string
	// DefaultInstance is the name of the instance that answers for the base domain itself; "" for none.
	DefaultInstance string

	// OperatorEmail and OperatorPasswordFile name a platform admin who is created unless an operator has that address.
	// Without them, SetupURL is called with the URL at which the first operator can be created, until there is one.
	OperatorEmail        string
	OperatorPasswordFile string
	SetupURL             func(url string)

	// NoBackups stops the server from making backups while none are configured, and lets it start if their folder
	// cannot be written.
	NoBackups bool
	// CheckOnly tells Check that no server is started: what a server with data would only warn of is then an error.
	CheckOnly bool

	Certificate Certificate
	ACME        ACME
	// TLSMin is the lowest version of TLS on the public listener: "1.3", or "1.2".
	TLSMin string
	// HTTPListen is the address of the plain listener beside an encrypted one, which redirects to it; "" for none.
	HTTPListen string
	// Reload, if not nil, makes the server read its certificates again.
	Reload <-chan struct{}

	// NodeSecretFile holds the secret by which nodes recognise each other, and in an optional second line one that is
	// also accepted; "" means that the server makes its own.
	NodeSecretFile      string
	InternalCertificate Certificate
	// InternalCAFile holds the CA certificates by which other nodes are verified; "" means those of the system.
	InternalCAFile string
	// Node is the name of a worker, Headnode the URL of its headnode's internal listener, PublicURL and InternalURL
	// where the worker's own listeners can be reached; "" means the addresses that they listen on.
	Node, Headnode, PublicURL, InternalURL string
}

// cluster is the place of a server among several.
type cluster struct {
	node     string
	upstream *upstream // nil for the headnode
}

func (o *ServeOptions) encrypted() bool { return o.Certificate.given() || o.ACME.On }

// Check reports everything that is wrong with the options. It opens only the files that they name, and fills in options
// that follow from others.
func (o *ServeOptions) Check() []error {
	var c checks
	c.addresses(o)
	c.proxies(o)
	c.store(&o.Store)
	c.erasures(&o.Options)
	c.dataBeside(&o.Options)
	c.publicTLS(o)
	c.operator(o)
	c.nodes(o)
	if o.KeyRate < 0 {
		c.add("rate-limit-per-key: %d is negative; 0 means no limit", o.KeyRate)
	}
	if o.AddressRate < 0 {
		c.add("rate-limit-per-ip: %d is negative; 0 means no limit", o.AddressRate)
	}
	c.limits(&o.Options)
	c.containers(&o.Options)
	c.anchor(&o.Options)
	c.plans(o)
	c.alerts(o)
	c.folders(o)
	return c.found
}

// Check returns everything that is wrong with the options of a development server.
func (o *DevOptions) Check() []error {
	var c checks
	c.store(&o.Store)
	c.erasures(&o.Options)
	c.dataBeside(&o.Options)
	c.limits(&o.Options)
	c.containers(&o.Options)
	c.anchor(&o.Options)
	return c.found
}

// Bounds of the settings for what one event may imply. All of it is one commit, which other writes wait for.
const (
	mostDepth   = 50
	mostImplied = 10_000
	// mostSagas bounds the setting for how many sagas of an instance run at once.
	mostSagas = 1_000_000
	// mostSagasPerWrite bounds the setting for how many sagas one write may start. Their rows are part of its commit.
	mostSagasPerWrite = 1_000
)

// leastCacheMiB is the smallest cache of the store, including recent writes; mostCacheMiB bounds the settings of
// caches.
const leastCacheMiB, mostCacheMiB = 80, 1 << 20

// mostScheduled bounds the setting for how many scheduled events of an instance may wait.
const mostScheduled = 10_000_000

// mostWait bounds the settings for how long a write or a read waits; it is less than the time of a request.
const mostWait = time.Minute

// Bounds of the settings for containers.
const (
	mostProcesses    = 1024
	mostContainerMiB = 1 << 20
)

func (c *checks) containers(o *Options) {
	if n := o.ContainerProcesses; n < 0 || n > mostProcesses {
		c.add("containers-processes: %d is not between 1 and %d", n, mostProcesses)
	}
	if n := o.ContainerDiskMiB; n < 0 || n > mostContainerMiB {
		c.add("containers-disk: %d is not between 1 and %d MiB", n, mostContainerMiB)
	}
}

func (c *checks) limits(o *Options) {
	if n := o.ImplicationsMaxDepth; n < 0 || n > mostDepth {
		c.add("implications-max-depth: %d is not between 1 and %d", n, mostDepth)
	}
	if n := o.ImplicationsMaxTotal; n < 0 || n > mostImplied {
		c.add("implications-max-total: %d is not between 1 and %d", n, mostImplied)
	}
	if n := o.SagasMax; n < 0 || n > mostSagas {
		c.add("sagas-max-per-instance: %d is not between 1 and %d", n, mostSagas)
	}
	if n := o.SagasPerWrite; n < 0 || n > mostSagasPerWrite {
		c.add("sagas-max-per-write: %d is not between 1 and %d", n, mostSagasPerWrite)
	}
	if n := o.ScheduledMaxPerInstance; n < 0 || n > mostScheduled {
		c.add("scheduled-max-per-instance: %d is not between 1 and %d", n, mostScheduled)
	}
	if w := o.WriteWait; w < 0 || w > mostWait {
		c.add("write-wait: %s is not between 1ns and %s", w, mostWait)
	}
	if p := o.PublicPath; p != "" && !publicPath(p) {
		c.add("public-path: %q is no path such as /j17: it begins with a slash and ends without one, and has letters, digits, '-', '_', '.' and '/' only", p)
	}
	if n := o.StoreCacheMiB; n != 0 && (n < leastCacheMiB || n > mostCacheMiB) {
		c.add("store-cache: %d is not between %d and %d MiB", n, leastCacheMiB, mostCacheMiB)
	}
	if n := o.ProjectionCacheMiB; n < 0 || n > mostCacheMiB {
		c.add("projection-cache: %d is not between 1 and %d MiB", n, mostCacheMiB)
	}
	if o.StreamsPerKey < 0 || o.Streams < 0 {
		c.add("streams: numbers of streams cannot be negative")
	}
	if w := o.ReadWait; w < 0 || w > mostWait {
		c.add("read-wait: %s is not between 1ns and %s", w, mostWait)
	}
}

// checks collects mistakes.
type checks struct{ found []error }

func (c *checks) add(format string, args ...any) {
	c.found = append(c.found, fmt.Errorf(format, args...))
}

func (c *checks) addresses(o *ServeOptions) {
	if o.Dir == "" {
		c.add("data: name the folder for the data")
	}
	switch {
	case o.BaseDomain == "":
		c.add("base-domain: name the domain under which instances have their hosts, such as example.com")
	case !isDomain(o.BaseDomain):
		c.add("base-domain: %q is no domain name in lower case", o.BaseDomain)
	}
	if o.DefaultInstance != "" {
		if err := control.CheckInstanceName(o.DefaultInstance); err != nil {
			c.add("default-instance: %w", err)
		}
	}
	addresses := []struct{ name, value string }{{"listen", o.Listen}, {"internal-listen", o.InternalListen}}
	if o.encrypted() && o.HTTPListen != "" {
		addresses = append(addresses, struct{ name, value string }{"http-listen", o.HTTPListen})
	}
	taken := map[string]string{}
	for _, a := range addresses {
		_, port, err := net.SplitHostPort(a.value)
		if err != nil {
			c.add("%s: %q must be an address and a port, such as 127.0.0.1:17000 or :443", a.name, a.value)
			continue
		}
		if n, err := strconv.Atoi(port); err == nil && (n < 0 || n > math.MaxUint16) {
			// names of ports are found out when they are listened on
			c.add("%s: %q has no port from 0 to 65535 behind the colon", a.name, a.value)
			continue
		}
		if other, ok := taken[a.value]; ok && port != "0" {
			c.add("%s: %s is the address of %s already", a.name, a.value, other)
		}
		taken[a.value] = a.name
	}
}

// folders tries to write to the folders of data and backups. A server that has data starts without a usable folder for
// backups, and warns of it: an emergency restart must not fail because of it.
func (c *checks) folders(o *ServeOptions) {
	if o.Dir == "" {
		return // reported elsewhere
	}
	if err := repository.TryFolder(o.Dir); err != nil {
		c.add("data: %w", err)
	}
	// Whether a store on PostgreSQL has data cannot be told here.
	_, err := os.Stat(o.storeFolder())
	if o.NoBackups || (err == nil || o.Store.Given()) && !o.CheckOnly {
		return
	}
	if err := repository.TryFolder(o.backupFolder()); err != nil {
		c.add("backups: %w. Name another folder, give the server's user rights to this one, or switch backups off with no-backups", err)
	}
}

// byDefault returns the backups that a server makes while none are configured: one a day of everything. A worker has no
// operators and no registry of its own, so it makes one of each environment.
func (o *ServeOptions) byDefault() func(instance string) backup.Settings {
	if o.NoBackups {
		return nil
	}
	return func(instance string) backup.Settings {
		if (instance == "") == (o.Role == RoleWorker) {
			return backup.Settings{}
		}
		return backup.Daily()
	}
}

// isDomain reports whether a name is a domain in lower case rather than an address.
func isDomain(name string) bool {
	label := regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	if _, err := netip.ParseAddr(name); err == nil || len(name) > 200 {
		return false
	}
	for part := range strings.SplitSeq(name, ".") {
		if !label.MatchString(part) {
			return false
		}
	}
	return true
}

func (c *checks) proxies(o *ServeOptions) {
	o.TrustedProxies = nil
	for _, text := range o.Proxies {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			addr, single := netip.ParseAddr(text)
			if single != nil {
				c.add("trusted-proxy: %q is no network such as 10.0.0.0/8 and no address", text)
				continue
			}
			p = netip.PrefixFrom(addr, addr.BitLen())
		}
		if p.Bits() == 0 {
			c.add("trusted-proxy: %s is every address there is; any client could claim that its requests come from someone else", text)
		}
		o.TrustedProxies = append(o.TrustedProxies, p.Masked())
	}
	switch o.ForwardedHeader {
	case "", httpapi.XForwardedFor, httpapi.Forwarded:
	default:
		c.add("forwarded-header: it must be %s or %s", httpapi.XForwardedFor, httpapi.Forwarded)
	}
}

func (c *checks) publicTLS(o *ServeOptions) {
	switch o.TLSMin {
	case "":
		o.TLSMin = "1.3"
	case "1.2", "1.3":
	default:
		c.add("tls-min: it must be 1.3 or 1.2")
	}
	if o.ACME.On && o.Certificate.given() {
		c.add("acme: a certificate is given as well; use one of the two")
	}
	c.certificate("tls", o.Certificate)
	if o.ACME.On && (!strings.Contains(o.BaseDomain, ".") || strings.HasSuffix(o.BaseDomain, ".localhost")) {
		c.add("acme: no authority gives certificates for %q; use a domain that others can look up", o.BaseDomain)
	}
	if o.ACME.Directory != "" {
		if u, err := url.Parse(o.ACME.Directory); err != nil || u.Scheme != "https" || u.Host == "" {
			c.add("acme-directory: %q is no URL that starts with https://", o.ACME.Directory)
		}
	}
	c.pool("acme-ca", o.ACME.CAFile)
	if !o.ACME.On && (o.ACME.Email != "" || o.ACME.Directory != "" || o.ACME.CAFile != "") {
		c.add("acme: settings for it are given, but it is off; add --acme")
	}
	if !o.encrypted() && !isLoopback(o.Listen) && len(o.Proxies) == 0 {
		c.add("listen: %s can be reached over the network, and without TLS keys and data would travel in clear. Give --tls-cert and --tls-key, or --acme; "+
			"behind a proxy that speaks TLS, name it with --trusted-proxy; or listen on 127.0.0.1", o.Listen)
	}
}

// isLoopback reports whether an address can be reached from this machine only.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return true // reported elsewhere
	}
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

func (c *checks) certificate(name string, files Certificate) {
	switch {
	case !files.given():
	case files.CertFile == "":
		c.add("%s-cert: it is missing beside %[1]s-key", name)
	case files.KeyFile == "":
		c.add("%s-key: it is missing beside %[1]s-cert", name)
	default:
		if _, err := os.Stat(files.KeyFile); err != nil {
			c.add("%s-key: %w", name, err)
			return
		}
		if _, err := openCertificates(files, nil); err != nil {
			setting := name + "-cert"
			if file, ok := errors.AsType[*fs.PathError](err); ok && file.Path == files.KeyFile {
				setting = name + "-key"
			}
			c.add("%s: %w", setting, err)
		}
	}
}

func (c *checks) pool(name, file string) {
	if file == "" {
		return
	}
	if _, err := certPool(file); err != nil {
		c.add("%s: %w", name, err)
	}
}

func (c *checks) operator(o *ServeOptions) {
	switch {
	case o.OperatorEmail == "" && o.OperatorPasswordFile == "":
		return
	case o.Role == RoleWorker:
		c.add("operator-email: a worker has no operators of its own")
		return
	case o.OperatorEmail == "":
		c.add("operator-email: it is missing beside operator-password-file")
	case o.OperatorPasswordFile == "":
		c.add("operator-password-file: it is missing beside operator-email")
	case !strings.Contains(o.OperatorEmail, "@"):
		c.add("operator-email: %q is no e-mail address", o.OperatorEmail)
	}
	if o.OperatorPasswordFile == "" {
		return
	}
	password, err := readPassword(o.OperatorPasswordFile)
	switch {
	case err != nil:
		c.add("operator-password-file: %w", err)
	case utf8.RuneCountInString(password) < control.MinPassword || len(password) > control.MaxPassword:
		c.add("operator-password-file: the password in %s must have at least %d characters and at most %d bytes", o.OperatorPasswordFile, control.MinPassword, control.MaxPassword)
	}
}

// readPassword reads a password from a file, without the line break at its end.
func readPassword(file string) (string, error) {
	raw, err := os.ReadFile(file) //nolint:gosec // the operator names it
	return strings.TrimRight(string(raw), "\r\n"), err
}

func (c *checks) plans(o *ServeOptions) {
	if o.PlansFile == "" {
		return
	}
	raw, err := os.ReadFile(o.PlansFile)
	if err != nil {
		c.add("plans-file: %w", err)
		return
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	o.Plans = nil
	if err := d.Decode(&o.Plans); err != nil {
		c.add("plans-file: %s must hold a JSON array of plans: %w", o.PlansFile, err)
	}
	for _, p := range o.Plans {
		if err := control.CheckPlan(p); err != nil {
			c.add("plans-file: plan %q: %w", p.Name, err)
		}
	}
}

func (c *checks) alerts(o *ServeOptions) {
	secret := func(name, file string, into *string) {
		if file == "" {
			return
		}
		var err error
		if *into, err = readPassword(file); err != nil {
			c.add("%s: %w", name, err)
		}
	}
	secret("alert-webhook-secret-file", o.WebhookSecretFile, &o.Webhook.Secret)
	secret("alert-mail-password-file", o.MailPasswordFile, &o.Mail.Password)
	o.Alerts = nil
	if o.Webhook.URL != "" {
		if u, err := url.Parse(o.Webhook.URL); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			c.add("alert-webhook: it is no URL that starts with https:// or http://")
		}
		o.Webhook.Sender = outbound.New(outbound.Options{Clock: clock.System{}, Private: true})
		o.Alerts = append(o.Alerts, usage.Webhook(o.Webhook))
	} else if o.WebhookSecretFile != "" {
		c.add("alert-webhook: it is missing beside alert-webhook-secret-file")
	}
	switch {
	case o.Mail.Host != "":
		if _, err := usage.Mail(o.Mail, nil); err != nil {
			c.add("alert-mail: %w", err)
		}
	case o.Mail.From != "" || o.Mail.User != "" || len(o.Mail.To) > 0 || o.MailPasswordFile != "":
		c.add("alert-mail-host: it is missing beside the other settings of mail")
	}
	o.mail = o.Mail
}

func (c *checks) nodes(o *ServeOptions) {
	// Headnodes and workers need the secret and the certificates; a single server may have them too.
	o.nodeSecrets = nil
	if o.NodeSecretFile != "" {
		o.nodeSecrets = c.nodeSecrets(o.NodeSecretFile)
	}
	c.certificate("internal-tls", o.InternalCertificate)
	c.pool("internal-ca", o.InternalCAFile)

	// The role.
	o.cluster = nil
	switch o.Role {
	case RoleAll, "":
		o.Role = RoleAll
	case RoleHeadnode, RoleWorker:
		o.cluster = &cluster{}
		if o.NodeSecretFile == "" {
			c.add("node-secret-file: a %s needs the secret that all nodes share", o.Role)
		}
		if o.Store.Given() {
			c.add("store: a %s keeps what it has in its data folder. Servers on one PostgreSQL have the role all", o.Role)
		}
	default:
		c.add("role: it must be %s, %s or %s", RoleAll, RoleHeadnode, RoleWorker)
		return
	}

	// Settings of a worker alone.
	if o.Role != RoleWorker {
		if o.Headnode != "" || o.PublicURL != "" || !o.Store.Given() && (o.Node != "" || o.InternalURL != "") {
			c.add("role: node, headnode, public-url and internal-url are settings of a worker; this server is a %s", o.Role)
		}
		return
	}
	c.worker(o)
	o.cluster.node = o.Node
	o.cluster.upstream = &upstream{base: strings.TrimSuffix(o.Headnode, "/")}
	if len(o.nodeSecrets) > 0 { // otherwise reported already
		o.cluster.upstream.secret = o.nodeSecrets[0]
	}
}

// nodeSecrets reads the secrets that a file holds.
func (c *checks) nodeSecrets(file string) (secrets []string) {
	raw, err := os.ReadFile(file) //nolint:gosec // the operator names it
	if err == nil {
		if secrets, err = parseSecrets(raw); err != nil {
			err = fmt.Errorf("%s: %w", file, err)
		}
	}
	if err != nil {
		c.add("node-secret-file: %w", err)
	}
	return secrets
}

func (c *checks) worker(o *ServeOptions) {
	if err := control.CheckNodeName(o.Node); err != nil {
		c.add("node: %w", err)
	}
	if o.DefaultInstance != "" {
		c.add("default-instance: it is a setting of a server with the role all")
	}
	if o.Headnode == "" {
		c.add("headnode: name the URL of the headnode's internal listener, such as https://headnode.internal:17001")
	}
	for _, u := range []struct{ name, value, listen string }{
		{"headnode", o.Headnode, ""},
		{"public-url", o.PublicURL, o.Listen},
		{"internal-url", o.InternalURL, o.InternalListen},
	} {
		if u.value != "" {
			if err := control.CheckNodeURL(u.value, u.name); err != nil {
				c.add("%w", err)
			}
			continue
		}
		if host, _, err := net.SplitHostPort(u.listen); err == nil {
			if addr, err := netip.ParseAddr(host); err != nil || addr.IsUnspecified() {
				c.add("%s: say where others reach this worker; it cannot be told from the address %s", u.name, u.listen)
			}
		}
	}
}

// Serve is a server for use by others.
type Serve struct {
	server  *Server
	options ServeOptions
	api     *httpapi.API
}

// maxClockJump is the longest forward step of the machine's clock that the store accepts while the server runs.
const maxClockJump = 24 * time.Hour

// OpenServe opens a server whose options have been checked.
func OpenServe(ctx context.Context, o ServeOptions) (_ *Serve, err error) {
	o.maxClockJump, o.backupsByDefault = maxClockJump, o.byDefault()
	s := &Serve{options: o, server: newServer(o.Options)}
	s.server.reload, s.server.nodeName, s.server.internalURL = o.Reload, o.Node, o.InternalURL

	// The listeners, each with its certificates, and the store.
	var transport *http.Transport
	if err := s.server.start(ctx, func(ctx context.Context) (err error) {
		s.warn(ctx)
		if err := s.server.publicTLS(o); err != nil {
			return err
		}
		transport, err = s.server.internalTLS(o)
		return err
	}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.server.Close())
		}
	}()

	// The redirect from HTTP to HTTPS.
	if err := s.server.redirect(ctx, o); err != nil {
		return nil, err
	}

	// What the role needs.
	options := httpapi.Options{Encrypted: o.encrypted()}
	switch o.Role {
	case RoleWorker:
		o.cluster.upstream.transport = transport
		options.Cluster = &httpapi.Cluster{Node: o.Node, Transport: transport}
		err = s.server.follow(ctx, o)
	case RoleHeadnode:
		options.Cluster = &httpapi.Cluster{Transport: transport}
		if err = s.server.checkHeadnode(ctx); err == nil {
			err = s.firstOperator(ctx)
		}
	case RoleAll:
		if err = s.server.checkAlone(); err == nil {
			err = s.firstOperator(ctx)
		}
	}
	if err != nil {
		return nil, err
	}

	if o.DefaultInstance != "" {
		instance, ok := s.server.registry.Instances.ByName(o.DefaultInstance)
		if !ok {
			return nil, fmt.Errorf("default-instance: there is no instance named %q; create it first, then name it", o.DefaultInstance)
		}
		options.DefaultInstance = instance.ID
	}

	// A headnode serves no environments.
	if o.Role != RoleHeadnode {
		s.server.restore(ctx)
	}
	s.api = s.server.api(options)
	s.server.face = func(next http.Handler) http.Handler { return secured(next, o.encrypted(), o.TrustedProxies) }
	return s, nil
}

// Run serves until the context ends.
func (s *Serve) Run(ctx context.Context) error {
	workers := []func(context.Context) error{s.server.watchCertificates}
	if f := s.server.follower; f != nil {
		workers = append(workers, f.run)
	}
	return s.server.run(ctx, s.api, workers...)
}

// Close releases the server's resources.
func (s *Serve) Close() error { return s.server.Close() }

// ServeReady says where a server can be reached.
type ServeReady struct {
	Ready   bool              `json:"ready"`
	Version string            `json:"version"`
	Role    Role              `json:"role"`
	Node    string            `json:"node,omitempty"`
	URLs    map[string]string `json:"urls"`
	// Addresses are those that the server listens on.
	Addresses map[string]string `json:"addresses"`
}

// warn logs settings that are allowed but risky.
func (s *Serve) warn(ctx context.Context) {
	o := s.options
	if !o.InternalCertificate.given() && !isLoopback(o.InternalListen) {
		o.Logger.LogAttrs(ctx, slog.LevelWarn, "the internal listener can be reached over the network without TLS; keep it on a private network, or give --internal-tls-cert", slog.String("address", o.InternalListen))
	}
	if u, err := url.Parse(o.Headnode); err == nil && u.Scheme == "http" &&
		!isLoopback(net.JoinHostPort(u.Hostname(), "0")) {
		o.Logger.LogAttrs(ctx, slog.LevelWarn, "the node secret goes to the headnode in clear; use https:// or a private network", slog.String("headnode", o.Headnode))
	}
}

// Ready returns where the server can be reached.
func (s *Serve) Ready() ServeReady {
	r := ServeReady{
		Ready: true, Version: s.options.Version, Role: s.options.Role, Node: s.options.Node, URLs: map[string]string{},
		Addresses: map[string]string{},
	}
	if s.options.Role != RoleWorker {
		r.URLs["control"] = s.controlURL()
		if s.server.screen != nil {
			r.URLs["dashboard"] = s.controlURL() + s.options.PublicPath + "/ui/"
		}
	}
	r.URLs["internal"] = urlOf(s.server.internal, s.options.InternalCertificate.given())
	for name, l := range map[string]net.Listener{
		"public": s.server.public, "internal": s.server.internal, "http": s.server.plain,
	} {
		if l != nil {
			r.Addresses[name] = l.Addr().String()
		}
	}
	return r
}

// controlURL is the address of the control plane, or behind a proxy that of the proxy.
func (s *Serve) controlURL() string {
	host, scheme, standard := control.ControlHost+"."+s.options.BaseDomain, "https", "443"
	if !s.options.encrypted() {
		if len(s.options.TrustedProxies) > 0 {
			return scheme + "://" + host
		}
		scheme, standard = "http", "80"
	}
	if _, port, err := net.SplitHostPort(s.server.public.Addr().String()); err == nil && port != standard {
		host = net.JoinHostPort(host, port)
	}
	return scheme + "://" + host
}

// checkHeadnode refuses a data folder with events, since a headnode would not serve them.
func (s *Server) checkHeadnode(ctx context.Context) error {
	tenants, err := s.store.Tenants(ctx)
	if err != nil {
		return err
	}
	for _, t := range tenants {
		for _, i := range s.registry.Instances.All() {
			if !strings.HasPrefix(string(t), i.ID+"/") {
				continue
			}
			extent, err := s.store.Extent(ctx, t)
			if err != nil {
				return err
			}
			if extent.Events > 0 {
				return fmt.Errorf("the data folder holds events of the instance %s, and a headnode serves none; start it with the role all, or on a folder without events", i.Name)
			}
		}
	}
	return nil
}

// checkAlone refuses a data folder whose instances are on workers.
func (s *Server) checkAlone() error {
	for _, i := range s.registry.Instances.All() {
		if i.Node != "" {
			return fmt.Errorf("the events of the instance %s are on the worker %s; start this folder with the role it had", i.Name, i.Node)
		}
	}
	return nil
}
