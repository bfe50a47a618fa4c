/** E-mail: one message over one SMTP connection, over TLS unless the target says otherwise. */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { errnoOf, reasonOf } from '@virtkeep/shared/errors';
import { createTransport, type NodemailerError } from 'nodemailer';
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
  const secretForms = [password, `\0${username}\0${password}`];
  return async (delivery, signal) => {
    const reached = new Set(delivery.reached.map(plain));
    const left = settings.to.filter(address => !reached.has(plain(address)));
    // who has not got it is a recipient no more
    if (left.length === 0) return '';
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
    const envelope = { from: asIs(settings.from), to: left.map(asIs) };
    const mail = { ...messageOf(delivery, settings), envelope, signal };
    try {
      const { accepted, rejectedErrors = [] } = await transport.sendMail(mail).catch((error: AllRefused) => {
        // that nobody takes it any more makes it no failure for those who have it
        if (error.rejectedErrors === undefined || delivery.reached.length === 0) throw error;
        return { accepted: [], rejectedErrors: error.rejectedErrors };
      });
      const remark = safeReason(refusal(rejectedErrors), secretForms);
      if (rejectedErrors.some(isPutOff))
        throw new DeliveryError(remark, { isAnswer: true, reached: accepted });
      return remark;
    } catch (error) {
      if (error instanceof DeliveryError) throw error;
      signal.throwIfAborted();
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

/** The server's answer for one recipient. */
type Refusal = Pick<NodemailerError, 'recipient' | 'response' | 'permanent'>;

/** What the library throws when no recipient was taken. */
type AllRefused = Pick<NodemailerError, 'rejectedErrors'>;

/** It may be taken later, as after greylisting, or when there is room in a mailbox again. */
const isPutOff = ({ permanent }: Refusal): boolean => permanent !== true;

/** What it says of those who did not get it, for people; empty when all did. */
function refusal(refusals: readonly Refusal[]): string {
  const namesOf = (some: readonly Refusal[]) => some.map(({ recipient }) => recipient).join(', ');
  const putOff = refusals.filter(isPutOff);
  const refused = refusals.filter(one => !isPutOff(one));
  return [
    ...(refused.length > 0 ? [`the server refused ${namesOf(refused)}`] : []),
    ...(putOff.length > 0 ? [`the server put off ${namesOf(putOff)}: ${putOff[0]!.response}`] : []),
  ].join('; ');
}

/** An address, however the library writes it to the server: it changes the case of domains, and quotes local parts such as `a..b`. */
const plain = (address: string): string => {
  const at = address.lastIndexOf('@');
  const local = address.slice(0, at);
  const unquoted = /^".*"$/.test(local) ? local.slice(1, -1).replace(/\\(.)/g, '$1') : local;
  return unquoted + address.slice(at).toLowerCase();
};

/** As an object: no text is taken apart for addresses. */
const asIs = (address: string) => ({ name: '', address });

function messageOf({ id, event, created, message }: Delivery, { from, to }: Mail['settings']) {
  return {
    from: { ...asIs(from), name: 'virtkeep' },
    to: to.map(asIs),
    subject: message.subject,
    text: message.text,
    date: new Date(created),
    // the same for each attempt, so that a mail that came twice is seen to be one
    messageId: `<${id}@${from.slice(from.lastIndexOf('@') + 1)}>`,
    headers: { 'Auto-Submitted': 'auto-generated', 'X-Virtkeep-Event': event, 'X-Virtkeep-Delivery': id },
  };
}
