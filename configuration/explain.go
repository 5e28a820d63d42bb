// SPDX-License-Identifier: Apache-2.0

package configuration

import (
	"fmt"
	"regexp"
	"strings"
)

var (
	keyChanged   = regexp.MustCompile(`Host key for (\S+) has changed and you have requested strict checking`)
	keyUnknown   = regexp.MustCompile(`No (\S+) host key is known for (\S+) and you have requested strict checking`)
	permission   = regexp.MustCompile(`(\S+@\S+): Permission denied \(([^)]*)\)`)
	connect      = regexp.MustCompile(`connect to host (\S+) port (\d+): ([A-Za-z ]+)`)
	closed       = regexp.MustCompile(`remote host "(\S+)".*: kex_exchange_identification: (.*)`)
	unresolvable = regexp.MustCompile(`Could not resolve hostname (\S+): ([A-Za-z ]+)`)
)

// The phrases that every message about a host key has one of.
const (
	notRecorded = "not the one recorded at the first contact"
	notVerified = "the ssh host key could not be verified"
)

// AboutHostKey tells whether a message of ExplainFailure says that ssh did not
// accept a host's key.
func AboutHostKey(message string) bool {
	return strings.Contains(message, notRecorded) || strings.Contains(message, notVerified)
}

// ForgetHostKey is what has the next contact with a node record its key anew.
func ForgetHostKey(node string) string {
	return fmt.Sprintf("clusterctl nodes set %s --forget-host-key (in the API forget_host_key: true)", node)
}

// ExplainFailure turns the message of a failed task into one that an operator
// can act on. Trouble that ssh reports at length becomes one sentence with its
// remedy; anything else is returned as it is, trimmed. node is the name of the
// node that the host is; empty where only its address is known.
func ExplainFailure(message, node string) string {
	expected := ""
	if node != "" {
		expected = "; if that is expected: " + ForgetHostKey(node)
	}

	if m := keyChanged.FindStringSubmatch(message); m != nil {
		return fmt.Sprintf(
			"the ssh host key of %s is %s: another machine answers under its address, or it was installed anew%s",
			m[1],
			notRecorded,
			expected,
		)
	}

	if m := keyUnknown.FindStringSubmatch(message); m != nil {
		return fmt.Sprintf("%s shows a %s host key, which is %s%s", m[2], m[1], notRecorded, expected)
	}

	if strings.Contains(message, "Host key verification failed") {
		return notVerified + "; where a jump host is used, its key must be in the known_hosts file of the account clusterm runs as"
	}

	if m := permission.FindStringSubmatch(message); m != nil {
		check := "ssh.user and ssh.key_file of the configuration (clusterctl config get ssh)"
		if node != "" {
			check = fmt.Sprintf(
				"user and key_file of the node's connection (clusterctl nodes set %s --user … --key-file …; in the API the field connection)",
				node,
			)
		}

		return fmt.Sprintf(
			"ssh access as %s was denied (%s): check %s, and that the public key is authorized on the host",
			m[1],
			m[2],
			check,
		)
	}

	if m := connect.FindStringSubmatch(message); m != nil {
		return fmt.Sprintf("no ssh connection to %s, port %s: %s", m[1], m[2], strings.ToLower(strings.TrimSpace(m[3])))
	}

	if m := closed.FindStringSubmatch(message); m != nil {
		return fmt.Sprintf(
			"no ssh connection to %s: it was closed before the login (%s); look whether an sshd listens at that port, or, where there is a jump host, whether it can be reached",
			m[1],
			strings.TrimSpace(m[2]),
		)
	}

	if m := unresolvable.FindStringSubmatch(message); m != nil {
		return fmt.Sprintf("the host name %s cannot be resolved: %s", m[1], strings.ToLower(strings.TrimSpace(m[2])))
	}

	return strings.TrimSpace(message)
}
