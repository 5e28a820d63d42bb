// SPDX-License-Identifier: Apache-2.0

package setting

import (
	"crypto/tls"
	"encoding/pem"
	"net"
	"net/http/httptest"
	"net/textproto"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/notify"
)

// startRelay starts a mail relay that offers STARTTLS, and accepts mail over TLS only. It returns its address, the file
// of the CA of its certificate, and the mails.
func startRelay(t *testing.T) (addr, caFile string, mails <-chan string) {
	t.Helper()

	server := httptest.NewTLSServer(nil)
	t.Cleanup(server.Close)

	caFile = filepath.Join(t.TempDir(), "ca.pem")
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		err = os.WriteFile(caFile, ca, 0o600)
	}
	errtest.None(t, err)
	t.Cleanup(func() { l.Close() })

	got := make(chan string, 2)

	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go relayMail(conn, &tls.Config{Certificates: server.TLS.Certificates}, got)
		}
	}()

	return l.Addr().String(), caFile, got
}

// relayMail leads the dialogue of one connection. An answer that does not arrive ends it with the next line.
func relayMail(conn net.Conn, config *tls.Config, mails chan<- string) {
	defer func() { conn.Close() }()

	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	text, secure := textproto.NewConn(conn), false
	_ = text.PrintfLine("220 relay ESMTP")

	for {
		line, err := text.ReadLine()
		if err != nil {
			return
		}

		switch verb, _, _ := strings.Cut(strings.ToUpper(line), " "); {
		case verb == "EHLO" && !secure:
			_ = text.PrintfLine("250-relay\r\n250 STARTTLS")
		case verb == "STARTTLS":
			_ = text.PrintfLine("220 go on")
			conn, secure = tls.Server(conn, config), true
			text = textproto.NewConn(conn)
		case verb == "DATA" && secure:
			_ = text.PrintfLine("354 go on")
			mail, _ := text.ReadDotBytes()
			mails <- string(mail)
			_ = text.PrintfLine("250 queued")
		default:
			_ = text.PrintfLine("250 ok")
		}
	}
}

// TestMail: a mail goes to a relay with a certificate of the CA in the settings, encrypted, and to no other relay.
func TestMail(t *testing.T) {
	t.Parallel()

	addr, ca, mails := startRelay(t)
	event := notify.Event{ID: "7-job.ended-3", Summary: "job 3 is Complete", Manager: "m-1", Time: time.Unix(1, 0)}

	for caFile, problem := range map[string]string{ca: "", "": "certificate"} {
		config := Config{Notifications: []Notification{{Name: "ops", CAFile: caFile, Mail: &NotificationMail{
			Relay: addr, From: "clusterm@example.com", To: []string{"ops@example.com"},
		}}}}
		err := config.Targets()[0].Sender.Send(t.Context(), event, time.Now())

		switch {
		case problem == "" && err != nil:
			t.Errorf("with the CA: %v", err)
		case problem == "":
			if mail := <-mails; !strings.Contains(mail, "job 3 is Complete") {
				t.Errorf("the relay got\n%s", mail)
			}
		case err == nil || !strings.Contains(err.Error(), problem) || notify.IsPermanent(err):
			t.Errorf("with an unknown certificate: %v", err)
		}
	}

	if len(mails) > 0 {
		t.Error("a relay with an unknown certificate got a mail")
	}
}
