// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/sirupsen/logrus"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/contiv/cluster/inventory"
)

// Schema is the version of the stored data that this build writes. It grows with every field
// that an older build would lose, so that one refuses the data. See Client.SchemaOps.
const Schema = "3"

// formerSchema is the version before, which this build reads too. Data of it have no form that
// Schema does not have.
const formerSchema = "2"

// supported is Schema as a number.
var supported, _ = strconv.Atoi(Schema)

// Restoring stands in the place of the version while a restore replaces the records. No build works with such a store.
const Restoring = "restoring"

// Readable reports whether this build reads data of the version.
func Readable(schema string) bool { return schema == Schema || schema == formerSchema }

const (
	requestTimeout = 10 * time.Second * slowness // of every request to the store
	schemaTimeout  = 2 * time.Second             // of the first request, which is repeated
)

// window is the number of bytes that gRPC sends before the other side has read them. It is as
// large as gRPC would let it grow. Without a fixed one, gRPC sends a ping with each message to
// find out whether a larger one helps, which wakes both processes once more.
const window = 16 << 20

// Client is a connection to etcd, with the prefix of all keys.
type Client struct {
	*clientv3.Client
	Prefix string // starts with a slash, ends without one

	host   *Server          // the member on this host, of Server.Dial; else nil
	auth   *clientv3.Client // requests tokens; nil without a user
	asks   *clientv3.Client // for the state of members, of Server.Dial; else nil
	empty  bool             // set by checkSchema
	any    bool             // data of every version is accepted, because it is replaced
	mu     sync.Mutex
	server serverVersion // guarded by mu
	others others        // as last seen; guarded by mu
	// cluster is the id of the one that answered first; 0: not known, or not of Server.Dial.
	cluster atomic.Uint64
	term    atomic.Uint64 // the newest known of a leader; 0: not known, or not of Server.Dial
	stop    context.CancelFunc
	tasks   sync.WaitGroup
}

// Dial connects to the embedded etcd, waits up to a minute until it responds, and
// refuses data of a schema that is neither Schema nor the one before.
func Dial(ctx context.Context, prefix string, endpoints ...string) (*Client, error) {
	accept := func(_ context.Context, c *Client) error {
		c.server.version = Version
		return nil
	}

	return connect(ctx, clientv3.Config{Endpoints: endpoints}, prefix, accept, nil)
}

// Close closes the connection.
func (c *Client) Close() error {
	if c.stop != nil {
		c.stop()
	}

	c.tasks.Wait()

	err := c.Client.Close()
	if c.auth != nil {
		err = errors.Join(err, c.auth.Close())
	}
	if c.asks != nil {
		err = errors.Join(err, c.asks.Close())
	}

	return err
}

// Status asks the member at an endpoint for its state. The library reads the endpoints of its client for that without a
// lock, so one whose endpoints are replaced cannot ask.
func (c *Client) Status(ctx context.Context, endpoint string) (*clientv3.StatusResponse, error) {
	if c.asks != nil {
		return c.asks.Status(ctx, endpoint)
	}
	return c.Client.Status(ctx, endpoint)
}

// Dial connects to the member at an endpoint and no other. It does so as Status does.
func (c *Client) Dial(endpoint string) (*grpc.ClientConn, error) {
	if c.asks != nil {
		return c.asks.Dial(endpoint)
	}
	return c.Client.Dial(endpoint)
}

// Defragment defragments the database of the member at an endpoint. It asks as Status does.
func (c *Client) Defragment(ctx context.Context, endpoint string) (*clientv3.DefragmentResponse, error) {
	if c.asks != nil {
		return c.asks.Defragment(ctx, endpoint)
	}
	return c.Client.Defragment(ctx, endpoint)
}

// connect retries until the store responds and accept returns nil, up to
// startTimeout. accept runs before the first write. It gives up early on an error
// that a retry cannot mend. The first failure is logged if log is not nil.
func connect(
	ctx context.Context,
	config clientv3.Config,
	prefix string,
	accept func(context.Context, *Client) error,
	log logrus.FieldLogger,
) (*Client, error) {
	setOptions(&config)

	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()

	var client *Client

	attempt := func() error {
		if client == nil {
			c, err := open(config)
			if err != nil {
				return Error(err)
			}
			client, c.Prefix = c, prefix
		}

		if err := accept(ctx, client); err != nil {
			return err
		}

		return client.checkSchema(ctx)
	}

	var failure error // the most useful one so far

	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		err := attempt()
		if err == nil {
			return struct{}{}, nil
		}

		var permanent bool
		if permanent, failure = explain(ctx, config, err, failure); permanent {
			return struct{}{}, backoff.Permanent(failure)
		}

		return struct{}{}, failure
	},
		backoff.WithBackOff(&backoff.ExponentialBackOff{
			InitialInterval: 50 * time.Millisecond, Multiplier: 2, MaxInterval: 500 * time.Millisecond,
			RandomizationFactor: 0.5,
		}),
		backoff.WithMaxElapsedTime(0), // ctx ends the attempts
		backoff.WithNotify(func(err error, _ time.Duration) {
			if log != nil {
				log.WithError(err).Warnf("etcd does not answer yet; waiting for up to %s", startTimeout)
				log = nil
			}
		}),
	)
	if err != nil {
		if client != nil {
			_ = client.Close()
		}
		return nil, failure // err may only report that the time is up
	}

	return client, nil
}

// setOptions adds the options that all connections share.
func setOptions(config *clientv3.Config) {
	config.Logger = zap.NewNop()
	config.DialTimeout = 5 * time.Second // applies to the first token, if there is a user
	config.DialKeepAliveTime = 10 * time.Second
	config.DialKeepAliveTimeout = cmp.Or(config.DialKeepAliveTimeout, 5*time.Second)
	config.MaxCallSendMsgSize, config.MaxCallRecvMsgSize = maxRequestSize, 1<<30

	// The defaults of gRPC wait up to two minutes, too long for a server on this host
	// or nearby.
	config.DialOptions = append([]grpc.DialOption{
		grpc.WithStaticStreamWindowSize(window), grpc.WithStaticConnWindowSize(window),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: grpcbackoff.Config{
				BaseDelay:  50 * time.Millisecond,
				Multiplier: 1.6,
				Jitter:     0.2,
				MaxDelay:   2 * time.Second,
			},
			MinConnectTimeout: 5 * time.Second,
		}),
	}, config.DialOptions...)
}

// explain replaces err by a more useful error if there is one, and reports whether
// retrying is useless. previous is the result of the attempt before.
func explain(ctx context.Context, config clientv3.Config, err, previous error) (permanent bool, useful error) {
	if inventory.KindOf(err) != inventory.KindUnavailable || accessRemedy(err) != "" {
		return true, err
	}

	if reason, permanent := diagnose(ctx, config); reason != "" {
		return permanent, inventory.Errorf(inventory.KindUnavailable, "etcd does not answer: %s", reason).
			Do("check etcd.endpoints, the certificate files, and whether the servers run")
	}

	// Mostly the last attempt fails because the time is up; the one before has the reason.
	if ctx.Err() != nil && previous != nil {
		return false, previous
	}

	return false, err
}

// open creates a client. If there is a user, a second connection without a token
// requests the tokens: a server before 3.5 that has restarted rejects any request
// with an old token, including the request for a new one.
func open(config clientv3.Config) (*Client, error) {
	c := &Client{}

	var err error
	if config.Username != "" {
		anonymous := config
		anonymous.Username, anonymous.Password = "", ""

		if c.auth, err = clientv3.New(anonymous); err != nil {
			return nil, err
		}

		// Clip: appending must not write into the array that anonymous shares.
		interceptor := grpc.WithChainUnaryInterceptor(c.interceptAuthenticate)
		config.DialOptions = append(slices.Clip(config.DialOptions), interceptor)
	}

	config.DialOptions = append(slices.Clip(config.DialOptions), grpc.WithChainUnaryInterceptor(c.interceptWrite))

	if c.Client, err = clientv3.New(config); err != nil && c.auth != nil {
		_ = c.auth.Close()
	}

	return c, err
}

// interceptAuthenticate sends requests for a token over the connection without one.
func (c *Client) interceptAuthenticate(
	ctx context.Context,
	method string,
	req, reply any,
	conn *grpc.ClientConn,
	next grpc.UnaryInvoker,
	opts ...grpc.CallOption,
) error {
	if method == pb.Auth_Authenticate_FullMethodName {
		return c.auth.ActiveConnection().Invoke(ctx, method, req, reply, opts...)
	}
	return next(ctx, method, req, reply, conn, opts...)
}

// accessRemedy returns the remedy for an error of authentication or permission, and
// "" for any other error.
func accessRemedy(err error) string {
	switch {
	case errors.Is(err, rpctypes.ErrAuthFailed):
		return "check etcd.user and the password in etcd.password_file"
	case errors.Is(err, rpctypes.ErrUserEmpty):
		return "the servers require a user: configure etcd.user and etcd.password_file"
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return "grant the user of clusterm a role with read and write access below etcd.prefix"
	}

	return ""
}

// SchemaKey is the key of the version of the stored data.
func (c *Client) SchemaKey() string { return c.Prefix + "/schema" }

// checkSchema refuses data that this build cannot read. It writes nothing, so that a full
// store can be opened, and another build still runs with the data.
func (c *Client) checkSchema(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, schemaTimeout)
	defer cancel()

	kv, err := c.readSchema(ctx)
	c.empty = err == nil && kv == nil
	return err
}

// readSchema returns the record of the schema version, or nil if there is none. It is
// KindRefused if this build cannot read data of that version.
func (c *Client) readSchema(ctx context.Context) (*mvccpb.KeyValue, error) {
	resp, err := c.Get(ctx, c.SchemaKey())
	if err != nil || len(resp.Kvs) == 0 {
		return nil, Error(err)
	}
	stored := string(resp.Kvs[0].Value)

	switch {
	case Readable(stored), c.any:
	case stored == Restoring:
		return nil, inventory.Errorf(inventory.KindRefused, "a restore of the store did not come to its end").
			Do("repeat it: clusterm restore FILE")
	default:
		err := inventory.Errorf(inventory.KindRefused,
			"the stored data has version %s, this clusterm supports version %s", stored, Schema)

		if version, _ := strconv.Atoi(stored); version > 0 && version < supported {
			return nil, err.Do("upgrade step by step: first start a version of clusterm that supports version %d",
				version+1)
		}

		return nil, err.Do("start the version of clusterm that wrote it, or a newer one")
	}

	return resp.Kvs[0], nil
}

// SchemaOps returns the operations that raise the schema version to Schema, once no instance of an older build
// writes: such a build refuses the data from then on. upgraded
// reports whether they do; without a version, or with this one, they only require that it stays.
// It is KindRefused if a newer build has raised the version since Dial.
func (c *Client) SchemaOps(ctx context.Context) (ops Ops, upgraded bool, err error) {
	kv, err := c.readSchema(ctx)
	if err != nil {
		return Ops{}, false, err
	}

	found := int64(0)
	if kv != nil {
		found = kv.ModRevision
	}
	ops.If = []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(c.SchemaKey()), "=", found)}

	if upgraded = kv != nil && string(kv.Value) == formerSchema; upgraded {
		ops.Then = []clientv3.Op{clientv3.OpPut(c.SchemaKey(), Schema)}
	}

	return ops, upgraded, nil
}

// Empty reports whether the prefix held no store when the client connected.
func (c *Client) Empty() bool { return c.empty }

// Initialize makes a store of the empty prefix: it stores the schema version.
func (c *Client) Initialize(ctx context.Context) error {
	ctx, cancel := Bounded(ctx)
	defer cancel()

	_, err := c.Put(ctx, c.SchemaKey(), Schema)
	return Error(err)
}

// Bounded returns a context for one request to the store.
func Bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, requestTimeout)
}

// Error wraps an error of the etcd client in an inventory.Error of the matching
// kind. It returns nil and context.Canceled unchanged.
func Error(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}

	switch {
	case errors.Is(err, rpctypes.ErrCompacted), errors.Is(err, rpctypes.ErrFutureRev):
		return inventory.Errorf(inventory.KindConflict, "%w", err)
	case errors.Is(err, rpctypes.ErrRequestTooLarge):
		return inventory.Errorf(inventory.KindTooLarge, "the record exceeds the size limit of the store: %w", err)
	case errors.Is(err, rpctypes.ErrTooManyOps):
		return inventory.Errorf(inventory.KindTooLarge,
			"the transaction has more operations than the store allows: %w", err).
			Do("raise max-txn-ops of the etcd servers to %d", MaxOps)
	case errors.Is(err, rpctypes.ErrNoSpace):
		return inventory.Errorf(inventory.KindUnavailable,
			"the store is full, so etcd accepts only deletions (alarm %s): %w", AlarmNoSpace, err).
			Do("see the check \"space\" of the health for the way out").With(inventory.ShowHealth())
	case errors.Is(err, rpctypes.ErrCorrupt):
		return inventory.Errorf(inventory.KindUnavailable,
			"etcd found damaged data and refuses every change (alarm %s): %w", AlarmCorrupt, err).
			Do("on the manager's host, run clusterm store check, which needs no running clusterm, and restore a " +
				"backup (clusterm restore FILE); only if it finds no damage, run clusterm store disarm")
	case status.Code(err) == codes.ResourceExhausted:
		// A message over gRPC's own limit has no error value, only this code.
		return inventory.Errorf(inventory.KindTooLarge, "the record exceeds the size limit of the store: %w", err)
	}

	if remedy := accessRemedy(err); remedy != "" {
		return inventory.Errorf(inventory.KindUnavailable, "the store refuses clusterm: %w", err).Do("%s", remedy)
	}

	return inventory.Errorf(inventory.KindUnavailable, "the store does not answer: %w", err).
		Do("see the log of clusterm and the state of etcd")
}
