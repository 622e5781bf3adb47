package httpapi

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strings"
)

// setupScript reads the token from the fragment of the URL, which browsers send to nobody, creates the first operator
// and signs them in. What it asks for is named relative to the page, so that it works below any path.
const setupScript = `
const form = document.querySelector("form"), button = form.querySelector("button"), says = document.querySelector("[role=alert]");
const dark = matchMedia("(prefers-color-scheme: dark)"), root = document.documentElement;
const paint = () => {
  let theme = null;
  try { theme = localStorage.getItem("j17.theme"); } catch {}
  root.dataset.theme = theme === "light" || theme === "dark" ? theme : dark.matches ? "dark" : "light";
};
paint();
dark.addEventListener("change", paint);
const send = async (path, body) => {
  const reply = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
  return reply.json();
};
const say = (text) => { says.textContent = text; says.hidden = false; };
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  button.disabled = true;
  says.hidden = true;
  const token = new URLSearchParams(location.hash.slice(1)).get("token") ?? "";
  const email = form.email.value.trim(), password = form.password.value;
  try {
    const answer = await send("api/setup", { token, email, password });
    if (!answer.ok) {
      say(answer.error);
    } else {
      history.replaceState(null, "", location.pathname);
      form.hidden = true;
      if (root.dataset.dashboard && (await send("api/sessions", { email, password })).ok) {
        location.replace(root.dataset.dashboard);
        return;
      }
      say("Done. You can log in as " + answer.operator.email + " now.");
    }
  } catch {
    say(form.hidden ? "The operator is created. Log in as " + email + "." : "The server cannot be reached. What you typed is still here; try again.");
  }
  button.disabled = false;
});
`

// setupStyle is what the page has beside the style sheets of the dashboard, and without them. Colours are theirs where
// they are there.
const setupStyle = `
html { color-scheme: light dark }
main { width: min(360px, calc(100vw - 32px)); margin: 0 auto; padding: 14vh 0 0; display: flex; flex-direction: column; gap: 12px; align-items: flex-start; font-family: var(--sans, system-ui, sans-serif) }
form { width: 100%; padding: 16px; display: flex; flex-direction: column; gap: 14px; box-sizing: border-box }
label, input, button { font: inherit }
input { width: 100%; box-sizing: border-box }
[hidden] { display: none }
.said { width: 100%; box-sizing: border-box; padding: 10px 12px; border-radius: 4px; overflow-wrap: anywhere }
`

const setupHTML = `<!DOCTYPE html>
<html lang="en" data-dashboard="{dashboard}">
<head>
<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><meta name="referrer" content="no-referrer">
<title>Set up j17</title>
{styles}<style>` + setupStyle + `</style>
</head>
<body>
<main>
<svg viewBox="0 0 46 24" height="34" aria-hidden="true"><g fill="none" stroke="currentColor" stroke-width="3" stroke-linecap="round"><path d="M9 9.6V17a4 4 0 0 1-4 4H3.6" /></g><circle cx="9" cy="3.9" r="2.7" fill="var(--accent, currentColor)" /><g fill="currentColor" transform="translate(-1.6 0)"><path d="M17.2 7.4 21.6 4h2.6v15h-3V7.6l-4 2.9z" /><path d="M28.5 4h12v2.4L34.4 19h-3.4l6-12.3h-8.5z" /></g></svg>
<h1>Set up j17</h1>
<p class="hint">Create the first operator of this server, a platform admin.</p>
<form class="reg">
<div class="field"><label for="email">Email</label><input id="email" class="in" name="email" type="email" autocomplete="username" required></div>
<div class="field"><label for="password">Password</label>
<input id="password" class="in" name="password" type="password" autocomplete="new-password" minlength="12" required aria-describedby="rule">
<span class="hint" id="rule">12 characters or more</span></div>
<button class="b p">Create the operator</button>
</form>
<p class="said plain" role="alert" hidden></p>
<noscript>This page needs JavaScript. Without it, send the token to POST /api/setup.</noscript>
</main>
<script>` + setupScript + `</script>
</body>
</html>
`

// setupPage is GET /setup on the control host: a form for what POST /api/setup takes. It ends at the dashboard, signed
// in, where there is one.
func (*accountHandlers) setupPage(c *call, w http.ResponseWriter) error {
	digest := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	leads, styles, sheets := "", "", ""
	if files := c.api.Dashboard; files != nil {
		leads, sheets = "ui/", "'self' "
		for _, name := range files.Styles() {
			styles += `<link rel="stylesheet" href="ui/` + name + "\">\n"
		}
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; connect-src 'self'; font-src 'self'; script-src "+digest(setupScript)+"; style-src "+sheets+digest(setupStyle)+
		"; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	c.write(w, http.StatusOK, []byte(strings.NewReplacer("{dashboard}", leads, "{styles}", styles).Replace(setupHTML)))
	return nil
}
