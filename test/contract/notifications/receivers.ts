/** Real receivers of notifications: an SMTP server with TLS and logins, an HTTPS server that keeps what it was sent. */
import { createHmac } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { createServer, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import { SMTPServer } from 'smtp-server';
import { issue, newAuthority } from '../grpc/pki.ts';

/** A certificate for localhost, and what one must trust for it. */
export async function newCertificate() {
  const authority = await newAuthority();
  const { chainPem, certificatePem, privateKeyPem } = await issue(authority, 'server', []);
  return { ca: authority.certificatePem, leaf: certificatePem, cert: chainPem, key: privateKeyPem };
}
export type Certificate = Awaited<ReturnType<typeof newCertificate>>;

export interface ReceivedMail {
  from: string;
  to: string[];
  /** By lower-case name; what was folded is one line again. */
  headers: Record<string, string[]>;
  text: string;
  /** It came over TLS. */
  secure: boolean;
  user: string | undefined;
}

export interface MailServerOptions {
  certificate: Certificate;
  /** TLS from the first byte. */
  implicit?: boolean;
  /** Without it nobody has to log in. */
  login?: { user: string; password: string };
  /** It offers neither logins nor STARTTLS. */
  poor?: boolean;
  /** What it answers to recipients that it does not take, by their address; may be changed while it runs. */
  refused?: Readonly<Record<string, { code: number; text: string }>>;
}

export class MailServer {
  readonly mails: ReceivedMail[] = [];
  /** Everything that clients gave as a password. */
  readonly passwords: string[] = [];
  options: MailServerOptions;
  port = 0;
  #server: SMTPServer | undefined;

  constructor(options: MailServerOptions) {
    this.options = options;
  }

  async start(): Promise<this> {
    const { certificate, implicit = false, login, poor = false } = this.options;
    const server = new SMTPServer({
      secure: implicit,
      key: certificate.key,
      cert: certificate.cert,
      authOptional: login === undefined,
      disabledCommands: poor ? ['AUTH', 'STARTTLS'] : [],
      logger: false,
      disableReverseLookup: true,
      closeTimeout: 1,
      onAuth: (auth, _session, done) => {
        this.passwords.push(auth.password ?? '');
        if (auth.username === login?.user && auth.password === login?.password)
          return done(null, { user: auth.username });
        done(Object.assign(new Error(`Authentication failed for ${auth.password}`), { responseCode: 535 }));
      },
      onRcptTo: ({ address }, _session, done) => {
        const refusal = this.options.refused?.[address];
        done(refusal && Object.assign(new Error(refusal.text), { responseCode: refusal.code }));
      },
      onData: (stream, session, done) => {
        const chunks: Buffer[] = [];
        stream.on('data', (chunk: Buffer) => chunks.push(chunk));
        stream.on('end', () => {
          const { mailFrom, rcptTo } = session.envelope;
          this.mails.push({
            from: mailFrom === false ? '' : (mailFrom?.address ?? ''),
            to: rcptTo.map(({ address }) => address),
            ...parts(Buffer.concat(chunks).toString()),
            secure: session.secure,
            user: session.user as string | undefined,
          });
          done();
        });
      },
    });
    // a client that goes away is no error of these tests
    server.on('error', () => {});
    await new Promise<void>(resolve => server.listen(this.port, '127.0.0.1', resolve));
    this.port = (server.server.address() as AddressInfo).port;
    this.#server = server;
    return this;
  }

  stop(): Promise<void> {
    return new Promise(resolve => (this.#server ? this.#server.close(() => resolve()) : resolve()));
  }
}

function parts(raw: string): Pick<ReceivedMail, 'headers' | 'text'> {
  const end = raw.indexOf('\r\n\r\n');
  const headers: Record<string, string[]> = {};
  for (const line of raw
    .slice(0, end)
    .replaceAll(/\r\n[ \t]+/g, ' ')
    .split('\r\n')) {
    const name = line.slice(0, line.indexOf(':')).toLowerCase();
    headers[name] = [...(headers[name] ?? []), decoded(line.slice(line.indexOf(':') + 1).trim())];
  }
  // of quoted-printable only that lines are continued: these texts are ASCII without equals signs
  return {
    headers,
    text: raw
      .slice(end + 4)
      .replaceAll('=\r\n', '')
      .replaceAll('\r\n', '\n'),
  };
}

/** Encoded words (RFC 2047) of UTF-8. */
function decoded(value: string): string {
  const words = value.replaceAll(/\?= =\?/g, '?==?');
  return words.replaceAll(/=\?UTF-8\?([QB])\?([^?]*)\?=/gi, (_word, encoding: string, text: string) => {
    if (encoding.toUpperCase() === 'B') return Buffer.from(text, 'base64').toString();
    const bytes = text
      .replaceAll('_', ' ')
      .replaceAll(/=([0-9A-F]{2})/gi, (_byte, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
    return Buffer.from(bytes, 'latin1').toString();
  });
}

export interface ReceivedRequest {
  path: string;
  headers: IncomingMessage['headers'];
  body: string;
}

export type Answer = (request: ReceivedRequest, response: ServerResponse) => void;

export class WebhookReceiver {
  readonly requests: ReceivedRequest[] = [];
  port = 0;
  answer: Answer = (_request, response) => response.writeHead(204).end();
  readonly #certificate: Certificate;
  #server: Server | undefined;

  constructor(certificate: Certificate) {
    this.#certificate = certificate;
  }

  get url(): string {
    return `https://localhost:${this.port}/hook?x=1`;
  }

  async start(): Promise<this> {
    const { cert, key } = this.#certificate;
    const server = createServer({ cert, key }, (request, response) => {
      response.on('error', () => {});
      void textOf(request).then(
        body => {
          const received = { path: request.url ?? '', headers: request.headers, body };
          this.requests.push(received);
          this.answer(received, response);
        },
        () => {},
      );
    });
    await new Promise<void>(resolve => server.listen(this.port, '127.0.0.1', resolve));
    this.port = (server.address() as AddressInfo).port;
    this.#server = server;
    return this;
  }

  async stop(): Promise<void> {
    this.#server?.closeAllConnections();
    await new Promise<void>(resolve => (this.#server ? this.#server.close(() => resolve()) : resolve()));
  }
}

async function textOf(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString();
}

/** As the documentation tells receivers to check it. */
export function isSigned({ headers, body }: ReceivedRequest, secret: string | Buffer): boolean {
  const signed = `${headers['webhook-id']}.${headers['webhook-timestamp']}.${body}`;
  return (
    headers['webhook-signature'] === `v1,${createHmac('sha256', secret).update(signed).digest('base64')}`
  );
}
