// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"crypto/tls"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// memberCredentials use TLS on the network, and nothing on a Unix socket, which only this
// account can open. clientv3 has one value of credentials for all endpoints. The files of
// member.json are read at each handshake, because the server may be opened while its
// clients run.
type memberCredentials struct {
	credentials.TransportCredentials // describe TLS
	dir                              string
}

func newMemberCredentials(dir string) credentials.TransportCredentials {
	return memberCredentials{credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12}), dir}
}

// ClientHandshake implements credentials.TransportCredentials. The authority is the
// address of the endpoint, so the certificate has to be for that host.
func (c memberCredentials) ClientHandshake(
	ctx context.Context, authority string, conn net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	if conn.RemoteAddr().Network() == "unix" {
		return insecure.NewCredentials().ClientHandshake(ctx, authority, conn)
	}

	m, err := ReadMember(c.dir)
	if err != nil {
		return nil, nil, err
	}

	config, err := m.tlsConfig()
	if err != nil {
		return nil, nil, err
	}

	return credentials.NewTLS(config).ClientHandshake(ctx, authority, conn)
}

// Clone implements credentials.TransportCredentials.
func (c memberCredentials) Clone() credentials.TransportCredentials {
	return memberCredentials{c.TransportCredentials.Clone(), c.dir}
}
