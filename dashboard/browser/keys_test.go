//go:build !race

package browser_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// keyWorks reports whether a key reads, and whether it writes.
func keyWorks(s *site, key string) (reads, writes bool) {
	s.tb.Helper()
	r := s.call("GET", "app", "/_events?count=1", key, nil)
	w := s.call("POST", "app", "/user/"+uid("by a key")+"/was_created", key, []byte(`{"data": {}, "metadata": {"actor": {"type": "user", "id": "`+user+`"}}}`))
	return r.status == http.StatusOK, w.status == http.StatusCreated
}

// takeKey reads the new key out of a dialog, which shows it once.
func (b *tab) takeKey() string {
	b.tb.Helper()
	key := b.see("textbox", "New key").value()
	if !regexp.MustCompile(`^j17_0_prod_\w+$`).MatchString(key) {
		b.fail("%q is no key of prod", key)
	}
	b.see("button", "Done").click()
	b.gone("dialog", nil)
	kept := js[string](b, "document.documentElement.outerHTML + [...document.querySelectorAll('input')].map(i => i.value) + JSON.stringify([{...localStorage}, {...sessionStorage}, history.state, location.href])")
	if strings.Contains(kept, key) {
		b.fail("the key is still in the page")
	}
	return key
}

func TestKeys(t *testing.T) {
	s := newSite(t, "spec.json")
	b := s.open(t, page("keys"))
	b.settled("API keys")
	b.see("table", "API keys").shows("dev read")

	// One that reads, and one that writes.
	make := func(name, scope string) string {
		t.Helper()
		b.see("button", "Create key").click()
		dialog := b.see("dialog", "Create key")
		dialog.see("textbox", "Name").fill(name)
		dialog.see("radio", scope).click()
		dialog.see("button", "Create").click()
		key := b.takeKey()
		b.see("table", "API keys").shows(regexp.QuoteMeta(name))
		return key
	}
	reader, writer := make("a reader", "Read"), make("a <b>writer</b>", "Write")
	if reads, writes := keyWorks(s, reader); !reads || writes {
		t.Errorf("the reader reads: %t, writes: %t", reads, writes)
	}
	if reads, writes := keyWorks(s, writer); !reads || !writes {
		t.Errorf("the writer reads: %t, writes: %t", reads, writes)
	}

	// Another text in the place of one.
	b.see("button", "Rotate a reader").click()
	b.see("dialog", "Rotate a reader").see("button", "Rotate").click()
	rotated := b.takeKey()
	if reads, _ := keyWorks(s, reader); reads {
		t.Error("the old text of a rotated key reads")
	}
	if reads, writes := keyWorks(s, rotated); !reads || writes {
		t.Errorf("the rotated key reads: %t, writes: %t", reads, writes)
	}

	// A dialog that is left changes nothing.
	b.see("button", "Revoke a <b>writer</b>").click()
	b.see("dialog", "Revoke a <b>writer</b>")
	b.press("Escape")
	b.gone("dialog", nil)
	b.see("button", "Revoke a <b>writer</b>").click()
	b.see("dialog", "Revoke a <b>writer</b>").see("button", "Cancel").click()
	b.gone("dialog", nil)
	if _, writes := keyWorks(s, writer); !writes {
		t.Error("a dialog that was left has revoked the key")
	}

	// At a time, and now.
	b.see("button", "Revoke a <b>writer</b>").click()
	dialog := b.see("dialog", "Revoke a <b>writer</b>")
	dialog.see("radio", "At a time").click()
	b.until("a field for the time", func() (bool, error) {
		return eval[bool](b, "(i => i && ((i.value = '2099-01-01T10:00'), i.dispatchEvent(new Event('input', {bubbles: true}))))(document.querySelector('dialog input[type=datetime-local]'))")
	})
	dialog.see("button", "Revoke").click()
	b.gone("dialog", nil)
	b.see("table", "API keys").shows("scheduled")
	if _, writes := keyWorks(s, writer); !writes {
		t.Error("a key that ends in 2099 has ended")
	}
	b.see("button", "Revoke a <b>writer</b>").click()
	b.see("dialog", "Revoke a <b>writer</b>").see("button", "Revoke").click()
	b.gone("dialog", nil)
	b.gone("button", "Revoke a <b>writer</b>")
	b.see("table", "API keys").shows(`a <b>writer</b>.*revoked`)
	if reads, _ := keyWorks(s, writer); reads {
		t.Error("a revoked key reads")
	}
}

// TestKeysOfEnvironments holds that the list is that of one environment, and that an auditor changes nothing.
func TestKeysOfEnvironments(t *testing.T) {
	s := newSite(t, "spec.json")
	s.control("POST", "/api/instances/"+s.ready.Instance.ID+"/keys", map[string]string{
		"name": "of staging", "scope": "read", "environment": "staging",
	})
	b := s.openAs(t, s.operator("auditor"), page("keys"))
	b.settled("API keys")
	b.see("table", "API keys").hides("of staging")
	if b.has("button", "Create key") || b.has("button", regexp.MustCompile("^(Revoke|Rotate) ")) {
		t.Error("an auditor has buttons that would be refused")
	}
	b.load(staging("keys"))
	b.settled("API keys")
	b.see("table", "API keys").shows("of staging")
}
