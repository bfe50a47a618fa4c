import { isNativeError } from 'node:util/types';
import winston from 'winston';
import { isExact } from './exact-json.ts';
import { escapeHidden } from './hidden-characters.ts';

export type Logger = Pick<winston.Logger, 'error' | 'warn' | 'info' | 'debug' | 'child'>;
export type LogLevel = 'error' | 'warn' | 'info' | 'debug';

const SECRET =
  /pass(word|phrase)?|pwd|secret|token|authorization|bearer|cookie|credential|(api|private)[-_]?key|ssh_key/i;
const SYSLOG_PRIORITY: Record<string, number> = { error: 3, warn: 4, info: 6, debug: 7 };

/** Copies a value with everything that bears a secret's name replaced; bounded in depth, so cycles end. */
export function redact(value: unknown, depth = 6): unknown {
  if (typeof value === 'bigint') return value.toString();
  if (typeof value !== 'object' || value === null || isExact(value)) return value;
  if (depth === 0) return '[…]';
  if (Array.isArray(value)) return value.map(item => redact(item, depth - 1));
  // of any realm; an object that merely has a `stack` is none, and must not hide what stands beside it
  if (isNativeError(value)) return describeError(value, depth);
  return Object.fromEntries(
    Object.entries(value).map(([key, item]) => [
      key,
      SECRET.test(key) ? '[redacted]' : redact(item, depth - 1),
    ]),
  );
}

/** A name is looked at once, from its beginning: from each of its characters, a long line would take minutes. */
const SECRET_NAME = `(?<![\\w.-])(?=[\\w.-]*?(?:${SECRET.source}))[\\w.-]+`;
const SECRET_IN_TEXT = new RegExp(
  `(${SECRET_NAME}["']?\\s*[=:]\\s*(?:(?:bearer|basic)\\s+)?|bearer\\s+)\\S+`,
  'gi',
);

/** Free text of another program without what it calls a secret: "password=…", "token: …". */
export const redactText = (text: string): string => text.replace(SECRET_IN_TEXT, '$1[redacted]');

function describeError(
  error: Error & { code?: unknown; msgKey?: unknown },
  depth: number,
): Record<string, unknown> {
  return {
    message: error.message,
    ...(error.code === undefined ? {} : { code: error.code }),
    ...(error.msgKey === undefined ? {} : { msg_key: error.msgKey }),
    stack: error.stack,
    ...(error.cause === undefined ? {} : { cause: redact(error.cause, depth - 1) }),
  };
}

/** One line of the log, whatever texts of guests and clients are in it. */
export function logLine({ level, message, timestamp, ...rest }: Record<string, unknown>): string {
  return escapeHidden(JSON.stringify({ time: timestamp, level, message, ...(redact(rest) as object) }));
}

/** Logger to stderr: one JSON object a line; under systemd with the `<N>` priority prefix of sd-daemon(3). */
export function createLogger(service: string, level: LogLevel = 'info'): Logger {
  const underSystemd = process.env.JOURNAL_STREAM !== undefined;
  const line = winston.format.printf(info => {
    const text = logLine(info);
    return underSystemd ? `<${SYSLOG_PRIORITY[info.level] ?? 6}>${text}` : text;
  });
  return winston.createLogger({
    level,
    defaultMeta: { service },
    format: winston.format.combine(winston.format.timestamp(), line),
    transports: [new winston.transports.Console({ stderrLevels: ['error', 'warn', 'info', 'debug'] })],
  });
}
