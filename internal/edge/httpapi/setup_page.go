package httpapi

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
)

// setupScript reads the token from the fragment of the URL, which browsers send to nobody, and creates the first operator.
const setupScript = `
const form = document.querySelector("form"), says = document.querySelector("output");
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  form.querySelector("button").disabled = true;
  const token = new URLSearchParams(location.hash.slice(1)).get("token") ?? "";
  const body = JSON.stringify({ token, email: form.email.value, password: form.password.value });
  try {
    const reply = await fetch("/api/setup", { method: "POST", headers: { "Content-Type": "application/json" }, body });
    const answer = await reply.json();
    says.textContent = answer.ok ? "Done. You can log in as " + answer.operator.email + " now." : answer.error;
    if (answer.ok) { form.hidden = true; history.replaceState(null, "", location.pathname); }
  } catch {
    says.textContent = "The server cannot be reached. Try again.";
  }
  form.querySelector("button").disabled = false;
});
`

const setupStyle = `
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 26rem; margin: 4rem auto; padding: 0 1rem; color-scheme: light dark }
label, input, button { display: block; width: 100%; box-sizing: border-box; font: inherit }
input, button { padding: .5rem; margin: .25rem 0 1rem }
`

const setupHTML = `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><meta name="referrer" content="no-referrer">
<title>Set up j17</title>
<style>` + setupStyle + `</style>
</head>
<body>
<h1>Set up j17</h1>
<p>Create the first operator of this server, a platform admin.</p>
<form>
<label for="email">E-mail address</label><input id="email" name="email" type="email" autocomplete="username" required>
<label for="password">Password, at least 12 characters</label>
<input id="password" name="password" type="password" autocomplete="new-password" minlength="12" required>
<button>Create the operator</button>
</form>
<p><output></output></p>
<noscript>This page needs JavaScript. Without it, send the token to POST /api/setup.</noscript>
<script>` + setupScript + `</script>
</body>
</html>
`

// setupPage is GET /setup on the control host: a form for what POST /api/setup takes.
func (*accountHandlers) setupPage(c *call, w http.ResponseWriter) error {
	digest := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; connect-src 'self'; script-src "+digest(setupScript)+"; style-src "+digest(setupStyle)+
		"; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	c.write(w, http.StatusOK, []byte(setupHTML))
	return nil
}
