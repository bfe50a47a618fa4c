/** Where the controller that acts takes the requests that the others forward to it; only controllers can reach it. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer, type Server } from 'node:https';
import type { Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import type { Logger } from '@virtkeep/shared/log';
import type { ControllerConfig } from '../config.ts';
import { limitBodyTimes, timeLimits } from '../http/connections.ts';
import type { CertificateAuthority } from '../pki/index.ts';
import { isController, PEER_RENEWAL_MS, peerCertificate } from './peer-tls.ts';

const HANDSHAKE_MS = 10_000;
/** One that lost its power says nothing. */
const LIVES_EVERY_MS = 30_000;

/**
 * What stands for the address of a controller that forwards: the client's own is the last of its X-Forwarded-For. Nothing can send from
 * it (RFC 6666, discarded), so to trust it trusts nobody else.
 */
export const FORWARDER_ADDRESS = '100::1';

export interface PeerServerOptions {
  config: ControllerConfig;
  log: Logger;
  ca: CertificateAuthority;
  handle: (request: IncomingMessage, response: ServerResponse) => void;
}

/** @returns the server, listening at `cluster.peer` @throws the error of the listening socket */
export async function listenForPeers({ config, log, ca, handle }: PeerServerOptions): Promise<Server> {
  const tls = async () => {
    const own = await peerCertificate(ca, 'server');
    return {
      key: own.privateKeyPem,
      cert: own.chainPem,
      ca: ca.certificatePem,
      minVersion: 'TLSv1.3' as const,
    };
  };
  const server = createServer(
    {
      ...timeLimits(config),
      ...(await tls()),
      requestCert: true,
      rejectUnauthorized: true,
      handshakeTimeout: HANDSHAKE_MS,
    },
    handle,
  );
  const renew = async () => server.setSecureContext(await tls());
  // the one before is good for days, in which it is tried again
  const renewing = setInterval(
    () => void renew().catch(error => log.warn('no new certificate for other controllers', { error })),
    PEER_RENEWAL_MS,
  );
  server.once('close', () => clearInterval(renewing));
  // the others keep them; one that the end of a connection crossed would have to be sent again by the client
  server.keepAliveTimeout = 0;
  server.maxConnections = config.limits.connections;
  server.on('connection', (socket: Socket) => socket.setKeepAlive(true, LIVES_EVERY_MS));
  server.on('secureConnection', (socket: TLSSocket) => {
    if (!isController(socket.getPeerCertificate())) return void socket.destroy();
    Object.defineProperty(socket, 'remoteAddress', { value: FORWARDER_ADDRESS });
  });
  limitBodyTimes(server, config);
  const { host, port } = config.cluster.peer;
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, host, resolve);
  });
  return server;
}
