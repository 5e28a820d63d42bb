// SPDX-License-Identifier: Apache-2.0

package configuration

import (
	"fmt"
	"strings"
)

var (
	// Messages of OpenSSH.
	keyChanged   = lazy(`Host key for (\S+) has changed and you have requested strict checking`)
	keyUnknown   = lazy(`No (\S+) host key is known for (\S+) and you have requested strict checking`)
	permission   = lazy(`(\S+@\S+): Permission denied \(([^)]*)\)`)
	connect      = lazy(`connect to host (\S+) port (\d+): ([A-Za-z ]+)`)
	closed       = lazy(`remote host "(\S+)".*: kex_exchange_identification: (.*)`)
	unresolvable = lazy(`Could not resolve hostname (\S+): ([A-Za-z ]+)`)
)

// Every message about a host key contains one of these phrases.
const (
	notRecorded = "not the one recorded at the first contact"
	notVerified = "the ssh host key could not be verified"
)

// Every message about credentials begins with this phrase.
const accessDenied = "ssh access as "

// AboutHostKey reports whether a message of ExplainFailure is about a host key
// that ssh did not accept.
func AboutHostKey(message string) bool {
	return strings.Contains(message, notRecorded) || strings.Contains(message, notVerified)
}

// AboutRecordedKey reports whether a message of ExplainFailure is about a host that
// has another key than the recorded one.
func AboutRecordedKey(message string) bool { return strings.Contains(message, notRecorded) }

// AboutAccess reports whether a message of ExplainFailure is about credentials
// that the host did not accept.
func AboutAccess(message string) bool { return strings.Contains(message, accessDenied) }

// notConnected begins every message about a connection that was never made.
const notConnected = "no ssh connection to "

// NeverConnected reports whether a message of ExplainFailure is about a host that
// ssh did not get into at all.
func NeverConnected(message string) bool {
	return strings.HasPrefix(message, notConnected) || AboutHostKey(message) || AboutAccess(message)
}

// ExplainFailure turns the message of a failed task into one that an operator
// can act on. An error of ssh becomes one sentence with its remedy; any other
// message is returned trimmed. node is empty if the host is not a node, but
// only an address.
func ExplainFailure(message, node string) string {
	remedy := ""
	if node != "" {
		remedy = "; if that is expected, trust the new key"
	}

	// The order matters: ssh reports a host key that it refuses in several lines,
	// and the general one is last.
	if m := keyChanged().FindStringSubmatch(message); m != nil {
		return fmt.Sprintf("the ssh host key of %s is %s: another machine answers under its address, "+
			"or it was installed anew%s", m[1], notRecorded, remedy)
	}

	if m := keyUnknown().FindStringSubmatch(message); m != nil {
		return fmt.Sprintf("%s shows a %s host key, which is %s, nor certified by a CA of ssh.host_ca%s",
			m[2], m[1], notRecorded, remedy)
	}

	if strings.Contains(message, "Host key verification failed") {
		return notVerified + "; where a jump host is used, its key must be in the known_hosts file " +
			"of the account clusterm runs as"
	}

	if m := permission().FindStringSubmatch(message); m != nil {
		return fmt.Sprintf(accessDenied+"%s was denied (%s): check %s, and that the public key is authorized "+
			"on the host", m[1], m[2], credentials(node))
	}

	if m := connect().FindStringSubmatch(message); m != nil {
		return fmt.Sprintf(notConnected+"%s, port %s: %s", m[1], m[2], lower(m[3]))
	}

	if m := closed().FindStringSubmatch(message); m != nil {
		return fmt.Sprintf(notConnected+"%s: it was closed before the login (%s); check that an sshd "+
			"listens at that port, and that the jump host, if there is one, is reachable",
			m[1], strings.TrimSpace(m[2]))
	}

	if m := unresolvable().FindStringSubmatch(message); m != nil {
		return fmt.Sprintf("the host name %s cannot be resolved: %s", m[1], lower(m[2]))
	}

	return strings.TrimSpace(message)
}

// credentials names the settings of the account and key for a host.
func credentials(node string) string {
	if node == "" {
		return "ssh.user and ssh.key_file of the configuration"
	}

	return "user and key_file of the node's connection"
}

func lower(message string) string { return strings.ToLower(strings.TrimSpace(message)) }
