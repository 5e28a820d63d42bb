// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestRedactText redacts the text between « and », and nothing else.
func TestRedactText(t *testing.T) {
	t.Parallel()

	for _, text := range []string{
		// NAME=VALUE and its like.
		`PASSWORD=«hunter2»`,
		`export PGPASSWORD=«hunter2»; psql -h db`,
		`db_password: «hunter2»`,
		`{"admin_passwd": «"hunter2"», "port": 1}`,
		`{\"api_key\": «\"hunter2\"», \"port\": 1}`,
		`token = «'two words'» and more`,
		`tokens: «["a", "b"]» and more`,
		`--password=«hunter2» --port 3306`,
		`https://host/x?access_token=«hunter2»`,
		// Options.
		`mysql --password «hunter2» --port 3306`,
		`mysql --password «swordfish» --port 3306`,
		`app -token «abc» -v`,
		`app --db-password «"two words"» -v`,
		`app --db-password «'two words'» -v`,
		`"cmd": "app --secret «\"two words\"» -v"`,
		"app --api-key \\\n  «hunter2» \\\n  -v",
		`['mysql', '--password', «'hunter2'», '-v']`,
		`["mysql", "--password", «"hunter2"», "-v"]`,
		`app --password --port 3306`,
		`app --password`,
		`app --passthrough X`,
		`app '--password=«two words»' -v`,
		`["app", "--password=«two words»", "-v"]`,
		`[\"app\", \"--password=«two words»\", \"-v\"]`,
		// Words.
		`machine h login u password «hunter2»`,
		`Authorization: token «0a1b2c3d»`,
		`the password is wrong`,
		`password authentication failed for user "x"`,
		`the token has expired`,
		// Programs.
		`sshpass -p «swordfish» ssh host`,
		`sshpass -p«swordfish» ssh host`,
		`curl -u admin:«swordfish» https://host/`,
		`curl --user "admin:«swordfish»" https://host/`,
		`curl --user=admin:«swordfish» https://host/`,
		`curl -u admin:«ab/cd9x» https://host/`,
		`curl -u admin:«/abcd» https://host/`,
		`curl -u :«swordfish» https://host/`,
		`curl -u 'admin:«two words»' https://host/`,
		`curl -u "admin:«it's \"two\" words»" https://host/`,
		`curl -u admin:«'two words'» https://host/`,
		"curl -u \\\n  admin:«swordfish» https://host/",
		`"cmd": "curl -u \"admin:«two words»\" https://host/"`,
		`["curl", "-u", "admin:«two words»", "https://host:80/"]`,
		`['curl', '--user', 'admin:«swordfish»', 'https://host:80/']`,
		`{\"cmd\": [\"curl\",\"-u\",\"admin:«two words»\",\"https://host:80/\"]}`,
		`["curl", "--user=admin:«two words»", "-uadmin:«two words»"]`,
		`["sort", "-u", "a", "b:c"]`,
		`ls -u a b:c`,
		`chown -R a:b /srv`,
		// Headers, URLs, keys.
		`Authorization: Bearer «abcdefghij»`,
		`proxy http://«user:swordfish»@proxy:3128/`,
		`proxy http://«user:sword@fish»@proxy:3128/`,
		`redis://«:swordfish»@host/0`,
		`http://host:80/mail/a@b`,
		"before «-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----» after",
		"«MIIB\nabcd\n-----END RSA PRIVATE KEY-----» after",
		"«MIIB\n-----END PRIVATE KEY-----» between «-----BEGIN PRIVATE KEY-----\nMIIB»",
		`TASK [base : Install packages] ***`,
		`10.0.0.2 : ok=3 changed=1`,
	} {
		given, want := strings.NewReplacer("«", "", "»", "").Replace(text), ""
		for rest := text; ; {
			before, after, ok := strings.Cut(rest, "«")
			want += before

			if !ok {
				break
			}

			want += redacted
			_, rest, _ = strings.Cut(after, "»")
		}

		if got := redactText(given); got != want {
			t.Errorf("redactText(%s)\n got %s\nwant %s", given, got, want)
		}
	}
}

func TestRedactJSON(t *testing.T) {
	t.Parallel()

	for _, test := range [][2]string{
		{`{"cmd":["app","--token","swordfish","-v"]}`, `{"cmd":["app","--token","[redacted]","-v"]}`},
		{`{"cmd":["app","--token","-v",1,"--password",2]}`, `{"cmd":["app","--token","-v",1,"--password",2]}`},
		{
			`{"password":"x","tokens":["a"],"pin":{"secret":3}}`,
			`{"password":"[redacted]","pin":{"secret":"[redacted]"},"tokens":["a"]}`,
		},
		{`{"cmd":["app","--token=two words","-v"]}`, `{"cmd":["app","--token=[redacted]","-v"]}`},
		{`{"cmd":["curl","-u","admin:a b","http://h:80/"]}`, `{"cmd":["curl","-u","admin:[redacted]","http://h:80/"]}`},
		{
			`{"cmd":["curl","--user","admin","--user=a:b c",1]}`,
			`{"cmd":["curl","--user","admin","--user=a:[redacted]",1]}`,
		},
		{`{"stdout":"mysql --password hunter2"}`, `{"stdout":"mysql --password [redacted]"}`},
	} {
		given, want := test[0], test[1]

		got, err := redactJSON([]byte(given), "")
		if err != nil || strings.TrimSpace(string(got)) != want {
			t.Errorf("redactJSON(%s) = %s, %v", given, got, err)
		}
		if !json.Valid(got) {
			t.Errorf("%s is not valid JSON", got)
		}
	}
}

// TestRedactKeepsTheRest redacts secrets in lines of logs and records, and keeps
// everything else.
func TestRedactKeepsTheRest(t *testing.T) {
	t.Parallel()

	for in, want := range map[string]string{
		"db_password: hunter2, next":        "db_password: [redacted], next",
		`{"api_key": "abc def", "x": 1}`:    `{"api_key": [redacted], "x": 1}`,
		`{"token": "a\"b c", "x": 1}`:       `{"token": [redacted], "x": 1}`,
		`{"tokens": ["a", "b"], "x": 1}`:    `{"tokens": [redacted], "x": 1}`,
		`{"my_secret":{"v":"a"}, "x": 1}`:   `{"my_secret":[redacted], "x": 1}`,
		"TOKEN=abc; retry":                  "TOKEN=[redacted]; retry",
		"Authorization: Bearer abcdefghijk": "Authorization: Bearer [redacted]",
		"proxy http://user:pw@proxy:3128/":  "proxy http://[redacted]@proxy:3128/",
		"a -----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl\n-----END OPENSSH PRIVATE KEY----- z": "a [redacted] z",
		"-----BEGIN RSA PRIVATE KEY-----\ncut off":                                         "[redacted]",
		"ssh-ed25519 AAAAC3 at http://[fd00::1]:9007/nodes/a": "ssh-ed25519 AAAAC3 at " +
			"http://[fd00::1]:9007/nodes/a",
		"no host key is known": "no host key is known",
	} {
		if got := redactText(in); got != want {
			t.Errorf("redactText(%q) = %q, want %q", in, got, want)
		}
	}

	const given = `{"a":[{"vault_password":"x","token":7,"key_file":"/k","note":"password=y"}],` +
		`"ok":true,"n":12345678901234567890}`

	const want = `{"a":[{"key_file":"/k","note":"password=[redacted]","token":"[redacted]",` +
		`"vault_password":"[redacted]"}],"n":12345678901234567890,"ok":true}` + "\n"

	doc, err := redactJSON([]byte(given), "")
	if err != nil || string(doc) != want {
		t.Errorf("redactJSON(%s) = %s, %v, want %s", given, doc, err, want)
	}
}
