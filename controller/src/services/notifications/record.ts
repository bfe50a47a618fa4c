/** Targets and notifications as clients see them. */
import type { AnyEventName, EventName } from './events.ts';
import type { MailFields, TargetKind } from './target-settings.ts';
import type { Templates } from './templates.ts';

export interface TargetRecord {
  id: string;
  verbose_name: string;
  kind: TargetKind;
  enabled: boolean;
  events: EventName[];
  templates: Templates;
  mail: (MailFields & { has_password: boolean }) | null;
  webhook: { url: string; has_secret: boolean; ca: string } | null;
  /** Notifications that wait for an attempt, and that were given up. */
  pending: number;
  dead: number;
  created: string;
  modified: string;
}

export const NOTIFICATION_STATUSES = ['pending', 'sent', 'dead'] as const;
export type NotificationStatus = (typeof NOTIFICATION_STATUSES)[number];

export interface NotificationRecord {
  id: string;
  target: { id: string; verbose_name: string };
  event: AnyEventName;
  key: string;
  status: NotificationStatus;
  attempts: number;
  next_attempt: string | null;
  last_attempt: string | null;
  reason: string;
  created: string;
  data: object;
}
