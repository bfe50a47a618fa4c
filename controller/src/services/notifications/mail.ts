/** E-mail: one message over one SMTP connection, over TLS unless the target says otherwise. */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { errnoOf, reasonOf } from '@virtkeep/shared/errors';
import { createTransport } from 'nodemailer';
import { type Delivery, DeliveryError, type Send, safeReason, trusting } from './delivery.ts';
import type { Mail } from './target-settings.ts';

/** Of one answer of the server, bytes. */
const MAX_ANSWER_BYTES = 65_536;
/** Refusals of this message, beside those of the login or the connection. */
const OF_THE_MESSAGE = new Set(['EENVELOPE', 'EMESSAGE']);

export function mailSender({ settings, secrets }: Mail): Send {
  const { host, port, security, username, ca } = settings;
  const { password } = secrets;
  const isLogin = username !== '';
  return async (delivery, signal) => {
    const transport = createTransport({
      host,
      port,
      secure: security === 'tls',
      requireTLS: security === 'starttls',
      ignoreTLS: security === 'none',
      tls: trusting(ca),
      getSocket: (_options, done) => {
        connected(host, port, signal).then(connection => done(null, { connection }), done);
      },
      maxResponseSize: MAX_ANSWER_BYTES,
      socketCloseTimeout: 0,
      // without it a server that offers no login would get the message all the same
      forceAuth: isLogin,
      ...(isLogin ? { auth: { user: username, pass: password } } : {}),
      disableFileAccess: true,
      disableUrlAccess: true,
    });
    try {
      const { rejected } = await transport.sendMail({ ...messageOf(delivery, settings), signal });
      const refused = (rejected ?? []).map(String).join(', ');
      return refused === '' ? '' : safeReason(`the server refused ${refused}`, [password]);
    } catch (error) {
      signal.throwIfAborted();
      const secretForms = [password, `\0${username}\0${password}`];
      throw new DeliveryError(safeReason(reasonOf(error), secretForms), {
        isAnswer: OF_THE_MESSAGE.has(errnoOf(error) ?? ''),
      });
    } finally {
      transport.close();
    }
  };
}

/**
 * A connection by the system's own way of finding a host, as webhooks have it: the library asks name servers past the hosts file.
 * Ends with the signal. @throws Error as node:net
 */
async function connected(host: string, port: number, signal: AbortSignal): Promise<Socket> {
  const socket = connect({ host, port });
  signal.addEventListener('abort', () => socket.destroy(), { once: true });
  await once(socket, 'connect', { signal });
  return socket;
}

function messageOf({ id, event, created, message }: Delivery, { from, to }: Mail['settings']) {
  return {
    // as objects: no text is taken apart for addresses
    from: { name: 'virtkeep', address: from },
    to: to.map(address => ({ name: '', address })),
    subject: message.subject,
    text: message.text,
    date: new Date(created),
    // the same for each attempt, so that a mail that came twice is seen to be one
    messageId: `<${id}@${from.slice(from.lastIndexOf('@') + 1)}>`,
    headers: { 'Auto-Submitted': 'auto-generated', 'X-Virtkeep-Event': event, 'X-Virtkeep-Delivery': id },
  };
}
