// SPDX-License-Identifier: Apache-2.0

package notify_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/notify"
)

// relay accepts one connection as an SMTP server without TLS, answers RCPT with the text,
// and sends its mails to the channel.
func relay(t *testing.T, recipient string) (addr string, got <-chan string) {
	t.Helper()

	l, err := net.Listen("tcp", "127.0.0.1:0")
	errtest.None(t, err)

	mails := make(chan string, 1)

	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()

		mails <- converse(conn, recipient)
	}()
	t.Cleanup(func() { l.Close() })

	return l.Addr().String(), mails
}

// converse leads the dialogue of one mail, and returns the mail.
func converse(conn net.Conn, recipient string) string {
	_ = conn.SetDeadline(time.Now().Add(time.Minute))

	var mail strings.Builder

	fmt.Fprint(conn, "220 relay ESMTP\r\n")

	for lines := bufio.NewScanner(conn); lines.Scan(); {
		verb, _, _ := strings.Cut(strings.ToUpper(lines.Text()), " ")

		switch verb {
		case "RCPT":
			fmt.Fprint(conn, recipient+"\r\n")
		case "DATA":
			fmt.Fprint(conn, "354 go on\r\n")

			// A line with a dot alone ends the mail.
			for lines.Scan() && lines.Text() != "." {
				mail.WriteString(lines.Text() + "\n")
			}

			fmt.Fprint(conn, "250 queued\r\n")
		case "QUIT":
			fmt.Fprint(conn, "221 bye\r\n")
			return mail.String()
		default:
			fmt.Fprint(conn, "250 ok\r\n")
		}
	}

	return mail.String()
}

func mailTo(t *testing.T, addr string, to ...string) *notify.Mail {
	t.Helper()
	m, err := notify.NewMail(notify.MailOptions{Relay: addr, From: "clusterm@example.com", To: to, PlainText: true})
	errtest.None(t, err)
	return m
}

// TestMail: a mail has all recipients, and the facts of the event. A line break in a
// summary adds no header.
func TestMail(t *testing.T) {
	t.Parallel()

	addr, got := relay(t, "250 ok")
	e := notify.Event{
		ID: "7-job.failed-3", Kind: notify.KindJobFailed, Time: time.Unix(1, 0), Manager: "m-1", Job: "3",
		Summary: "job 3 is Errored\r\nBcc: x@y.z", Detail: "a task failed", Nodes: []string{"n-1", "n-2"},
	}

	errtest.None(t, mailTo(t, addr, "ops@example.com", "b@example.com").Send(t.Context(), e, time.Now()))

	text := <-got
	for _, word := range []string{
		"From: <clusterm@example.com>", "<ops@example.com>, <b@example.com>", "a task failed", "n-1 n-2",
		"Message-ID: <7-job.failed-3@clusterm.m-1>",
	} {
		if !strings.Contains(text, word) {
			t.Errorf("%q is not in\n%s", word, text)
		}
	}

	head, _, _ := strings.Cut(text, "\n\n")
	if strings.Contains(head, "\nBcc:") {
		t.Errorf("the summary made a header:\n%s", head)
	}
}

// TestMailRefused: a refused recipient is final, a relay that is busy or away is not.
func TestMailRefused(t *testing.T) {
	t.Parallel()

	for answer, permanent := range map[string]bool{"550 no such user": true, "451 try later": false} {
		addr, _ := relay(t, answer)

		err := mailTo(t, addr, "ops@example.com").Send(t.Context(), notify.Event{ID: "1"}, time.Now())
		if err == nil || notify.IsPermanent(err) != permanent {
			t.Errorf("%s: %v, permanent %t", answer, err, notify.IsPermanent(err))
		}
	}

	err := mailTo(t, "127.0.0.1:1", "ops@example.com").Send(t.Context(), notify.Event{ID: "1"}, time.Now())
	if err == nil || notify.IsPermanent(err) {
		t.Errorf("a relay that is away: %v, permanent %t", err, notify.IsPermanent(err))
	}

	// Without TLS the relay gets no mail.
	addr, _ := relay(t, "250 ok")

	strict, err := notify.NewMail(notify.MailOptions{Relay: addr, From: "a@b.c", To: []string{"a@b.c"}})
	errtest.None(t, err)
	if err := strict.Send(t.Context(), notify.Event{ID: "1"}, time.Now()); err == nil {
		t.Error("a mail went to a relay without TLS")
	}
}

// TestSilentRelay: a relay that accepts the connection and says nothing holds an attempt
// no longer than its deadline.
func TestSilentRelay(t *testing.T) {
	t.Parallel()

	l, err := net.Listen("tcp", "127.0.0.1:0")
	errtest.None(t, err)
	defer l.Close()

	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()

	err = mailTo(t, l.Addr().String(), "ops@example.com").Send(ctx, notify.Event{ID: "1"}, time.Now())
	if err == nil || notify.IsPermanent(err) {
		t.Errorf("a silent relay: %v, permanent %t", err, notify.IsPermanent(err))
	}
}
