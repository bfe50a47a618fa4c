/** Webhooks: one signed POST. What counts is the status; the answer's body is not read, and redirects are not followed. */
import { reasonOf } from '@virtkeep/shared/errors';
import { HttpClient } from '@virtkeep/shared/http-client';
import { type Delivery, DeliveryError, type Send, safeReason, trusting } from './delivery.ts';
import { signatureHeaders } from './signature.ts';
import type { Webhook } from './target-settings.ts';

const IDLE_TIMEOUT_MS = 30_000;

export function webhookSender({ settings, secrets }: Webhook): Send {
  const { ca } = settings;
  return async (delivery, signal) => {
    const client = new HttpClient({
      agent: trusting(ca),
      idleTimeoutMs: IDLE_TIMEOUT_MS,
      maxAnswerBytes: 0,
    });
    try {
      const { status, stream } = await client.open({ ...requestOf(delivery, secrets), signal });
      stream.on('error', () => {}).destroy();
      if (status >= 200 && status < 300) return '';
      const redirect = status >= 300 && status < 400 ? '; redirects are not followed' : '';
      throw new DeliveryError(`the receiver answered ${status}${redirect}`, { isAnswer: true });
    } catch (error) {
      if (error instanceof DeliveryError) throw error;
      signal.throwIfAborted();
      throw new DeliveryError(safeReason(reasonOf(error), [secrets.secret, secrets.url]));
    } finally {
      client.close();
    }
  };
}

function requestOf(delivery: Delivery, { url, secret }: Webhook['secrets']) {
  const { id, event, created, controller, data, message, now } = delivery;
  const body = JSON.stringify({ id, event, created, controller, ...message, data });
  return {
    method: 'POST',
    url: new URL(url),
    payload: body,
    headers: { 'user-agent': 'virtkeep', ...signatureHeaders(secret, { id, now, body }) },
  };
}
