/**
 * Who calls: the role in the client certificate's SAN URI `urn:virtkeep:role:<role>`. TLS has verified the certificate
 * against the CA of the enrolment before any of this runs; a node's certificate carries no role and may call nothing.
 */
import * as grpc from '@grpc/grpc-js';
import { orAborted } from '@virtkeep/shared/abort';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { onceAt } from '@virtkeep/shared/once-at';
import { serialOf } from '@virtkeep/shared/serials';
import type { CallContext, ServerMiddleware } from 'nice-grpc-common';
import type { Revocations } from '../enroll/revocations.ts';
import { mayCall, ROLES, type Role } from './permissions.ts';

/** Internal metadata between the interceptor, which alone sees the certificate, and the middleware. */
const PEER_KEY = 'virtkeep-internal-peer';
const ROLE_URI = /^URI:urn:virtkeep:role:([a-z]+)$/;

export interface Peer {
  subject: string;
  /** Of its certificate; empty without one. */
  serial: string;
  /** End of its certificate, ms since 1970; absent without one. */
  endsAt?: number;
  role?: Role | undefined;
}

/** Puts the peer of the connection into the metadata; whatever the client sent under that key is replaced. */
export const peerInterceptor: grpc.ServerInterceptor = (_method, call) => {
  const listener = new grpc.ServerListenerBuilder()
    .withOnReceiveMetadata((metadata, next) => {
      metadata.remove(PEER_KEY);
      metadata.set(PEER_KEY, encodeURIComponent(JSON.stringify(peerOf(call))));
      next(metadata);
    })
    .build();
  const responder = new grpc.ResponderBuilder().withStart(next => next(listener)).build();
  return new grpc.ServerInterceptingCall(call, responder);
};

/** Refuses what the table does not allow: VirtkeepError peer_not_allowed. */
export const permissionMiddleware: ServerMiddleware = async function* (call, context) {
  const peer = peerIn(context);
  if (!mayCall(peer.role, call.method.path, call.request)) {
    throw new VirtkeepError('peer_not_allowed', { subject: peer.subject, method: call.method.path });
  }
  return yield* call.next(call.request, context);
};

/**
 * Refuses who shows a revoked certificate (VirtkeepError peer_revoked) or one that has ended (peer_ended), and ends the calls that
 * are going on when theirs is revoked or ends: a connection can be older than that, and TLS looks once.
 */
export function revocationMiddleware(revocations: Revocations): ServerMiddleware {
  return async function* (call, context) {
    const { subject, serial, role, endsAt = Number.POSITIVE_INFINITY } = peerIn(context);
    const refused = () => new VirtkeepError('peer_revoked', { subject, serial });
    const late = () => new VirtkeepError('peer_ended', { subject, serial });
    if (endsAt <= Date.now()) throw late();
    if (revocations.isRevoked(serial) || (revocations.unreadable && role !== 'controller')) throw refused();
    const ended = new AbortController();
    const forget = revocations.whenRevoked(serial, () => ended.abort(refused()));
    const timer = onceAt(endsAt, () => ended.abort(late()));
    const signal = AbortSignal.any([context.signal, ended.signal]);
    const answers = call.next(call.request, { ...context, signal });
    try {
      // whatever its work does: the peer gets nothing more
      for (;;) {
        const answer = await orAborted<IteratorResult<unknown>>(answers.next(), ended.signal);
        if (answer.done) return answer.value as never;
        yield answer.value as never;
      }
    } finally {
      timer.stop();
      forget();
      const closed = answers.return(undefined as never);
      // what a revoked one waits for may never come; its work hears of it by the signal
      if (ended.signal.aborted) closed.catch(() => {});
      else await closed;
    }
  };
}

/** Whether who calls may see what opens something: services see of a definition what users see. */
export function maySeeSecrets(context: CallContext): boolean {
  return peerIn(context).role === 'controller';
}

/** Who calls, as the interceptor has seen it. */
export function peerIn({ metadata }: CallContext): Peer {
  const text = metadata.get(PEER_KEY);
  return text ? (JSON.parse(decodeURIComponent(text)) as Peer) : { subject: '', serial: '' };
}

function peerOf(call: grpc.ServerInterceptingCallInterface): Peer {
  const certificate = call.getAuthContext().sslPeerCertificate;
  if (!certificate) return { subject: '', serial: '' };
  const commonName: string | string[] = certificate.subject?.CN ?? '';
  return {
    subject: String(commonName),
    serial: serialOf(certificate.serialNumber),
    endsAt: Date.parse(certificate.valid_to),
    role: roleOf(certificate.subjectaltname ?? ''),
  };
}

/**
 * The highest role among the names of a certificate, in the form Node gives them ("URI:urn:…, DNS:…"). A name that
 * contains a comma or a quote is quoted by Node, so it cannot pose as two.
 */
export function roleOf(subjectAltName: string): Role | undefined {
  const roles = subjectAltName.split(', ').map(name => ROLE_URI.exec(name)?.[1]);
  return ROLES.findLast(role => roles.includes(role));
}
