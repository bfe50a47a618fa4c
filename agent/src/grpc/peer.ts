/**
 * Who calls: the role in the client certificate's SAN URI `urn:virtkeep:role:<role>`. TLS has verified the certificate
 * against the CA of the enrolment before any of this runs; a node's certificate carries no role and may call nothing.
 */
import * as grpc from '@grpc/grpc-js';
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { ServerMiddleware } from 'nice-grpc-common';
import { mayCall, ROLES, type Role } from './permissions.ts';

/** Internal metadata between the interceptor, which alone sees the certificate, and the middleware. */
const PEER_KEY = 'virtkeep-internal-peer';
const ROLE_URI = /^URI:urn:virtkeep:role:([a-z]+)$/;

interface Peer {
  subject: string;
  role?: Role;
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
  const text = context.metadata.get(PEER_KEY);
  const peer: Peer = text ? (JSON.parse(decodeURIComponent(text)) as Peer) : { subject: '' };
  if (!mayCall(peer.role, call.method.path, call.request)) {
    throw new VirtkeepError('peer_not_allowed', { subject: peer.subject, method: call.method.path });
  }
  return yield* call.next(call.request, context);
};

function peerOf(call: grpc.ServerInterceptingCallInterface): Peer {
  const certificate = call.getAuthContext().sslPeerCertificate;
  if (!certificate) return { subject: '' };
  const commonName: string | string[] = certificate.subject?.CN ?? '';
  return { subject: String(commonName), role: roleOf(certificate.subjectaltname ?? '') };
}

/**
 * The highest role among the names of a certificate, in the form Node gives them ("URI:urn:…, DNS:…"). A name that
 * contains a comma or a quote is quoted by Node, so it cannot pose as two.
 */
export function roleOf(subjectAltName: string): Role | undefined {
  const roles = subjectAltName.split(', ').map(name => ROLE_URI.exec(name)?.[1]);
  return ROLES.findLast(role => roles.includes(role));
}
