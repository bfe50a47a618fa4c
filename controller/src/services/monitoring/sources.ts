/**
 * What `/metrics` tells of nodes, VMs, scheduled tasks and notifications. Who knows of them says so through one of these, from memory: a
 * monitoring system asks several times a minute, for all of them. Without a source its metrics are left out.
 */
import type { VmMeasures } from '../protection/protection.ts';

export interface NodeMeasures {
  id: string;
  name: string;
  connected: boolean;
  /** It is in service mode: somebody works on it. */
  service: boolean;
}

export interface PoolMeasures {
  id: string;
  name: string;
  type: string;
  /** A connected node can use it. */
  active: boolean;
  sizeBytes: number;
  freeBytes: number;
  usedBytes: number;
}

export interface InventoryMetricsSource {
  nodes(): Iterable<NodeMeasures>;
  pools(): Iterable<PoolMeasures>;
  vms(): Iterable<VmMeasures>;
}

/** Of an enabled scheduled task. Times are ms since 1970. */
export interface ScheduleMeasures {
  id: string;
  name: string;
  /** Null: it is not due again. */
  nextRun: number | null;
  /** When its last run with a good end ended; null: none has yet. */
  lastSuccess: number | null;
  /** Of the last run that has ended. */
  lastDurationMs: number | null;
}

export interface QueueMeasures {
  /** Parts of runs that wait to begin. */
  length: number;
  /** Since when the one waits that has waited longest, in ms since 1970; null: none does. */
  oldest: number | null;
}

export interface ScheduleMetricsSource {
  tasks(): Iterable<ScheduleMeasures>;
  queue(): QueueMeasures;
}

export interface NotificationMetricsSource {
  /** Notifications that could not be delivered, and that nobody has looked at. */
  deadLetters(): number | Promise<number>;
}

/** Each is set once at start. */
export class MetricSources {
  #inventory: InventoryMetricsSource | undefined;
  #schedules: ScheduleMetricsSource | undefined;
  #notifications: NotificationMetricsSource | undefined;

  setInventory(source: InventoryMetricsSource): void {
    this.#inventory = source;
  }

  setSchedules(source: ScheduleMetricsSource): void {
    this.#schedules = source;
  }

  setNotifications(source: NotificationMetricsSource): void {
    this.#notifications = source;
  }

  get inventory(): InventoryMetricsSource | undefined {
    return this.#inventory;
  }

  get schedules(): ScheduleMetricsSource | undefined {
    return this.#schedules;
  }

  get notifications(): NotificationMetricsSource | undefined {
    return this.#notifications;
  }
}
