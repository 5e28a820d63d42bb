// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestHideText: what is between « and » has to go, and everything else stays.
func TestHideText(t *testing.T) {
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

			want += removed
			_, rest, _ = strings.Cut(after, "»")
		}

		if got := hideText(given); got != want {
			t.Errorf("%s\nbecomes %s\nand not %s", given, got, want)
		}
	}
}

func TestHideJSON(t *testing.T) {
	t.Parallel()

	for given, want := range map[string]string{
		`{"cmd":["app","--token","swordfish","-v"]}`:         `{"cmd":["app","--token","[removed]","-v"]}`,
		`{"cmd":["app","--token","-v",1,"--password",2]}`:    `{"cmd":["app","--token","-v",1,"--password",2]}`,
		`{"password":"x","tokens":["a"],"pin":{"secret":3}}`: `{"password":"[removed]","pin":{"secret":"[removed]"},"tokens":["a"]}`,
		`{"cmd":["app","--token=two words","-v"]}`:           `{"cmd":["app","--token=[removed]","-v"]}`,
		`{"cmd":["curl","-u","admin:a b","http://h:80/"]}`:   `{"cmd":["curl","-u","admin:[removed]","http://h:80/"]}`,
		`{"cmd":["curl","--user","admin","--user=a:b c",1]}`: `{"cmd":["curl","--user","admin","--user=a:[removed]",1]}`,
		`{"stdout":"mysql --password hunter2"}`:              `{"stdout":"mysql --password [removed]"}`,
	} {
		got, err := hideJSON([]byte(given), "")
		if err != nil || strings.TrimSpace(string(got)) != want {
			t.Errorf("%s becomes %s, %v", given, got, err)
		}

		if !json.Valid(got) {
			t.Errorf("%s is no JSON", got)
		}
	}
}
