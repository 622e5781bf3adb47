package postgres_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// databases are the names of the machines with PostgreSQL, Patroni and etcd.
func databases() []string { return []string{"pg1", "pg2", "pg3"} }

// password is that of the role j17.
const password = "not a secret / of anybody"

// startDatabases starts the machines with PostgreSQL from the plain files, and the proxy, and returns when one is
// primary, the others follow it and the role is there.
func startDatabases(t *testing.T) *machines {
	t.Helper()
	m := newMachines(t, "etcd", "patroni", "haproxy")
	replacements := []string{
		"/usr/lib/postgresql/15/bin", m.programs, "username: postgres", "username: " + m.postgres,
		"local all postgres", "local all " + m.postgres, "shared_buffers: 1GB", "shared_buffers: 64MB",
		"device: /dev/watchdog", "device: /nowhere/watchdog",
	}
	if os.Getenv("J17_SOAK") == "" {
		replacements = append(replacements, "loop_wait: 4", "loop_wait: 1") // which makes the test shorter
	}
	for _, name := range databases() {
		m.certify(t, name, "etc/etcd")
		m.certify(t, name, "etc/patroni")
		m.write(t, name, "etc/patroni/config.yml", m.place(t, "patroni.yml", name, replacements...))
		for _, folder := range []string{"var/lib/postgresql", "var/run/postgresql"} {
			m.run(t, nil, "", "mkdir", "-p", filepath.Join(m.folder, name, folder))
		}
		m.startEtcd(t, name)
	}
	for _, name := range databases() {
		m.startPatroni(t, name)
	}
	m.startProxy(t)
	m.awaitCluster(t)
	m.createRole(t)
	return m
}

// createRole executes role.sql at the primary, and returns when all servers have the role and the database.
func (m *machines) createRole(t *testing.T) {
	t.Helper()
	sql, err := os.ReadFile("role.sql")
	if err != nil {
		t.Fatal(err)
	}
	psql := filepath.Join(m.programs, "psql")
	primary := m.members(t)["leader"].Name
	m.run(t, []string{"STORE_PASSWORD=" + password}, string(sql), psql, m.superuser(t, primary)...)
	for _, name := range databases() {
		await(t, "the role on "+name, func() bool {
			return m.command(t, nil, psql, append(m.superuser(t, name), "-d", "j17", "-c", "SELECT")...).Run() == nil
		})
	}
}

// superuser are the arguments with which psql reaches a server from its machine.
func (m *machines) superuser(t *testing.T, machine string) []string {
	t.Helper()
	return []string{
		"-X", "-h", filepath.Join(m.folder, machine, "var/run/postgresql"), "-U", m.postgres, "-d", "postgres",
		"-p", strconv.Itoa(m.port(t, machine, "5432")),
	}
}

// certify writes the certificate and the key of a machine into a folder of it.
func (m *machines) certify(t *testing.T, machine, folder string) {
	t.Helper()
	for name, text := range map[string]string{
		"ca.crt": m.read(t, "certificates/ca.crt"), "node.crt": m.certificate(t), "node.key": m.key(t),
	} {
		m.write(t, machine, filepath.Join(folder, name), text)
	}
}

func (m *machines) certificate(t *testing.T) string {
	t.Helper()
	return m.read(t, "certificates/"+loopback+".crt")
}

func (m *machines) key(t *testing.T) string {
	t.Helper()
	return m.read(t, "certificates/"+loopback+".key")
}

func (m *machines) startEtcd(t *testing.T, name string) {
	t.Helper()
	data := filepath.Join(m.folder, name, "var/lib/etcd")
	m.start(t, name, m.settings(t, "etcd.conf", name), "etcd", "--data-dir", data)
}

func (m *machines) startPatroni(t *testing.T, name string) {
	t.Helper()
	env := append(
		m.settings(t, "patroni.conf", name), "PATRONI_REPLICATION_PASSWORD=of the replication",
		"PATRONI_REWIND_PASSWORD=of the rewind",
	)
	m.start(t, name, env, "patroni", filepath.Join(m.folder, name, "etc/patroni/config.yml"))
}

func (m *machines) startProxy(t *testing.T) {
	t.Helper()
	m.certify(t, "proxy", "etc/haproxy")
	m.write(t, "proxy", "etc/haproxy/example.com.pem", m.certificate(t)+m.key(t))
	m.write(t, "proxy", "etc/haproxy/haproxy.cfg", m.place(
		t, "haproxy.cfg", "proxy", "  user haproxy\n  group haproxy\n  chroot /var/lib/haproxy\n", "",
		"log /dev/log local0", "log stdout format raw local0", "maxconn 20000", "maxconn 1000",
	))
	m.start(t, "proxy", nil, "haproxy", "-db", "-f", filepath.Join(m.folder, "proxy", "etc/haproxy/haproxy.cfg"))
}

// member is a server as Patroni knows it.
type member struct {
	Name, Role, State string
	Timeline          int
}

// members asks all servers for the members of the cluster until one answers, and returns them by their roles.
func (m *machines) members(t *testing.T) map[string]member {
	t.Helper()
	byRole := map[string]member{}
	for _, name := range databases() {
		var answer struct{ Members []member }
		if m.get(t, "https://"+m.at(t, name, "8008")+"/cluster", &answer) == http.StatusOK {
			for _, x := range answer.Members {
				byRole[x.Role] = x
			}
			break
		}
	}
	return byRole
}

// awaitCluster waits until there is a primary, a standby that commits wait for, and another one, and returns the name
// of the primary.
func (m *machines) awaitCluster(t *testing.T) (primary string) {
	t.Helper()
	await(t, "a primary and two standbys", func() bool {
		members := m.members(t)
		primary = members["leader"].Name
		for _, role := range []string{"leader", "sync_standby", "replica"} {
			x := members[role]
			if x.State != "running" && x.State != "streaming" || x.Timeline != members["leader"].Timeline {
				return false
			}
		}
		return true
	})
	return primary
}
