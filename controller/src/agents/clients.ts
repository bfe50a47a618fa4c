/** The gRPC clients of one agent over one mutually authenticated connection. */
import { isIP } from 'node:net';
import { createSecureContext, type PeerCertificate, type SecureContext } from 'node:tls';
import { credentials } from '@grpc/grpc-js';
import { EPOCH_KEY, parseEpoch } from '@virtkeep/shared/epoch';
import { hasKey, isVirtkeepError, VirtkeepError } from '@virtkeep/shared/errors';
import {
  type BackupServiceClient,
  BackupServiceDefinition,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { type DiskServiceClient, DiskServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/disk';
import {
  type DomainServiceClient,
  DomainServiceDefinition,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import {
  type GuestServiceClient,
  GuestServiceDefinition,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/guest';
import {
  type ImageServiceClient,
  ImageServiceDefinition,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/image';
import { type NodeServiceClient, NodeServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/node';
import {
  type OperationServiceClient,
  OperationServiceDefinition,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { type PoolServiceClient, PoolServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import {
  type RestoreServiceClient,
  RestoreServiceDefinition,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/restore';
import {
  type SnapshotServiceClient,
  SnapshotServiceDefinition,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/snapshot';
import {
  type TemplateServiceClient,
  TemplateServiceDefinition,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/template';
import {
  type UploadServiceClient,
  UploadServiceDefinition,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/upload';
import { fromClientError } from '@virtkeep/shared/grpc-status';
import { serialOf } from '@virtkeep/shared/serials';
import { MiB } from '@virtkeep/shared/units';
import { type ClientMiddleware, createChannel, createClientFactory, Metadata } from 'nice-grpc';
import { errorDetailsClientMiddleware } from 'nice-grpc-error-details';
import { nodeHost, nodeUrn } from '../pki/index.ts';
import { type Acting, ALONE } from './acting.ts';
import { around } from './around.ts';
import { type ClientMaker, lazyClient } from './lazy-client.ts';
import { letGoOfPieces } from './message-pieces.ts';

export interface AgentClients {
  node: NodeServiceClient;
  domains: DomainServiceClient;
  pools: PoolServiceClient;
  backups: BackupServiceClient;
  images: ImageServiceClient;
  uploads: UploadServiceClient;
  restores: RestoreServiceClient;
  snapshots: SnapshotServiceClient;
  disks: DiskServiceClient;
  templates: TemplateServiceClient;
  guests: GuestServiceClient;
  operations: OperationServiceClient;
}

export interface AgentTarget {
  /** UUID of the node; the peer must prove it. */
  id: string;
  /** For people, in error texts. */
  name: string;
  /** `host:port`; IPv6 addresses in brackets. */
  address: string;
}

/** What a node shows to prove itself. */
export interface NodeCertificate {
  serial: string;
  /** SHA-256 of the DER, lower-case hex. */
  fingerprint: string;
  /** In ms since the epoch. */
  notBefore: number;
  notAfter: number;
}

/** What the controller shows to the agents, by whom theirs must be signed (PEM), and which of those it takes. */
export interface AgentTls {
  caPem: string;
  chainPem: string;
  privateKeyPem: string;
  /** Why a certificate of our authority with the node's name is not taken; undefined when it is. */
  refusal?: (nodeId: string, shown: NodeCertificate) => string | undefined;
  acting?: Acting;
}

export interface PeerValidity {
  notBefore: number;
  notAfter: number;
  /** It also names a host or an address, as certificates of earlier versions do. */
  hasForeignNames: boolean;
}

export interface AgentChannel {
  clients: AgentClients;
  /** Life of the certificate the agent shows, in ms since the epoch; undefined before the first connection. */
  peer(): PeerValidity | undefined;
  close(): void;
}

letGoOfPieces();

/** A silent node is noticed after time plus time-out: 15 s. */
const KEEPALIVE = {
  'grpc.keepalive_time_ms': 10_000,
  'grpc.keepalive_timeout_ms': 5_000,
  'grpc.keepalive_permit_without_calls': 1,
};

/** An inventory of 10,000 domains is about 10 MiB; a scan by an agent of before tells every file. */
export const MAX_MESSAGE_BYTES = 128 * MiB;

/**
 * Opens a channel; it connects with the first call. The node is known by the URN in its certificate, not by its address.
 * @param ended ends every call over it with `node_unreachable`: a node that does not answer must not hold up who ends the link
 */
export function openAgentChannel(target: AgentTarget, tls: AgentTls, ended: AbortSignal): AgentChannel {
  let peer: PeerValidity | undefined;
  const secure = credentials.createFromSecureContext(contextOf(tls), {
    checkServerIdentity: (_host, certificate) => {
      peer = {
        notBefore: Date.parse(certificate.valid_from),
        notAfter: Date.parse(certificate.valid_to),
        hasForeignNames: hasForeignNames(target.id, certificate),
      };
      return checkNodeIdentity(target, certificate, tls.refusal);
    },
  });
  const channel = createChannel(target.address, secure, {
    ...KEEPALIVE,
    ...serverName(target),
    'grpc.use_local_subchannel_pool': 1,
    // its records of each channel and call are asked for by nobody
    'grpc.enable_channelz': 0,
    'grpc.max_receive_message_length': MAX_MESSAGE_BYTES,
  });
  // The middleware attached last is the outermost: statuses get their details first, then become table errors.
  const factory = createClientFactory()
    .use(errorDetailsClientMiddleware)
    .use(ofChannel(target.name, ended, tls.acting ?? ALONE));
  const make: ClientMaker = definition => factory.create(definition, channel);
  return {
    clients: {
      node: lazyClient(NodeServiceDefinition, make),
      domains: lazyClient(DomainServiceDefinition, make),
      pools: lazyClient(PoolServiceDefinition, make),
      backups: lazyClient(BackupServiceDefinition, make),
      images: lazyClient(ImageServiceDefinition, make),
      uploads: lazyClient(UploadServiceDefinition, make),
      restores: lazyClient(RestoreServiceDefinition, make),
      snapshots: lazyClient(SnapshotServiceDefinition, make),
      disks: lazyClient(DiskServiceDefinition, make),
      templates: lazyClient(TemplateServiceDefinition, make),
      guests: lazyClient(GuestServiceDefinition, make),
      operations: lazyClient(OperationServiceDefinition, make),
    },
    peer: () => peer,
    close: () => channel.close(),
  };
}

/**
 * Every call says the epoch of the controller that makes it, fails with an error of the table, and ends with the channel.
 * @param ended of the channel
 */
function ofChannel(node: string, ended: AbortSignal, acting: Acting): ClientMiddleware {
  return around(options => {
    const epoch = acting.mustAct();
    const metadata = Metadata(options.metadata);
    if (epoch !== undefined) metadata.set(EPOCH_KEY, String(epoch));
    const here = new AbortController();
    const end = () => here.abort();
    if (ended.aborted) end();
    ended.addEventListener('abort', end, { once: true });
    const signal = options.signal ? AbortSignal.any([options.signal, here.signal]) : here.signal;
    const explained = (cause: unknown): unknown => {
      const error = fromClientError(cause, node);
      if (!here.signal.aborted || options.signal?.aborted || isVirtkeepError(error)) return error;
      const reason = 'the connection was ended';
      return new VirtkeepError('node_unreachable', { node, reason }, { cause: error });
    };
    return {
      options: { ...options, metadata, signal },
      failed: cause => {
        const error = explained(cause);
        if (hasKey(error, 'controller_superseded'))
          acting.sawHigher(parseEpoch(error.params.highest ?? '') ?? 0);
        return error;
      },
      ended: () => ended.removeEventListener('abort', end),
    };
  });
}

let parsed: { from: AgentTls; context: SecureContext } | undefined;

/** Key and certificates are parsed once for all nodes, and again when they are others. */
function contextOf(tls: AgentTls): SecureContext {
  const isSame = (['caPem', 'chainPem', 'privateKeyPem'] as const).every(
    part => parsed?.from[part] === tls[part],
  );
  if (!parsed || !isSame) {
    const { caPem: ca, chainPem: cert, privateKeyPem: key } = tls;
    parsed = { from: tls, context: createSecureContext({ ca, cert, key }) };
  }
  return parsed.context;
}

/** TLS has no server name for an address (RFC 6066): a node that is reached by one is named by its id. */
export function serverName({ id, address }: AgentTarget): Record<string, string> {
  const host = address.replace(/:\d+$/, '').replace(/^\[(.*)\]$/, '$1');
  return isIP(host) === 0 ? {} : { 'grpc.ssl_target_name_override': id };
}

function shownBy(certificate: PeerCertificate): NodeCertificate {
  return {
    serial: serialOf(certificate.serialNumber),
    fingerprint: certificate.fingerprint256.replaceAll(':', '').toLowerCase(),
    notBefore: Date.parse(certificate.valid_from),
    notAfter: Date.parse(certificate.valid_to),
  };
}

function namesOf(certificate: PeerCertificate): string[] {
  return (certificate.subjectaltname ?? '').split(', ');
}

function hasForeignNames(nodeId: string, certificate: PeerCertificate): boolean {
  const own = [`URI:${nodeUrn(nodeId)}`, `DNS:${nodeHost(nodeId)}`];
  return namesOf(certificate).some(name => !own.includes(name));
}

function checkNodeIdentity(
  target: AgentTarget,
  certificate: PeerCertificate,
  refusal: AgentTls['refusal'],
): Error | undefined {
  const names = namesOf(certificate);
  const refused = names.includes(`URI:${nodeUrn(target.id)}`)
    ? refusal?.(target.id, shownBy(certificate))
    : `shows a certificate that is not that of node ${target.id}`;
  if (refused === undefined) return undefined;
  const reason = `the machine at ${target.address} ${refused}`;
  return new VirtkeepError('node_unreachable', { node: target.name, reason });
}
