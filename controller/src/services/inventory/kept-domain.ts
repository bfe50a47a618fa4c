/**
 * Domains as they are kept. A hundred thousand messages of two dozen parts each are what the garbage collector looks at for longest, for
 * nothing: most of them are asked for a name or a state, and seldom.
 */
import { Domain, type PowerState } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import type { Conflict } from './domain-home.ts';

/** A change is looked at by many, before and after, and told of when others have come: of so many the messages are kept that were made last. */
const MOST_WHOLE = 256;
/** Those whose messages are kept, each in the place of one that was there before. */
const whole: (KeptDomain | undefined)[] = Array.from({ length: MOST_WHOLE }, () => undefined);
let place = 0;

/** A report of a node about a domain; of the same domain, another one each time. */
export class KeptDomain {
  readonly id: string;
  readonly name: string;
  readonly powerState: PowerState;
  readonly parentId: string;
  readonly template: boolean;
  /** MiB. */
  readonly memoryCount: number;
  readonly cpuCount: number;
  /** The message as the database has it: one thing without parts. */
  readonly json: string;
  /** The same with its parts, for a while. */
  #domain: Domain | undefined;

  /** @param json the same message as a text */
  constructor(domain: Domain, json = JSON.stringify(Domain.toJSON(domain))) {
    this.id = domain.id;
    this.name = domain.name;
    this.powerState = domain.powerState;
    this.parentId = domain.parentId;
    this.template = domain.template;
    this.memoryCount = Number(domain.memoryCount);
    this.cpuCount = domain.cpuCount;
    this.json = json;
    this.#keep(domain);
  }

  static ofJson(json: string): KeptDomain {
    return new KeptDomain(Domain.fromJSON(JSON.parse(json)), json);
  }

  /** All of it, made anew (3 to 5 µs with two disks) unless it is among those made last. Nobody changes it, or compares parts of it by identity. */
  get domain(): Domain {
    return this.#domain ?? this.#keep(Domain.fromJSON(JSON.parse(this.json)));
  }

  #keep(domain: Domain): Domain {
    const former = whole[place];
    if (former) former.#domain = undefined;
    whole[place] = this;
    place = (place + 1) % MOST_WHOLE;
    this.#domain = domain;
    return domain;
  }

  /** Both tell the same, also of when it was. */
  equals(other: KeptDomain): boolean {
    return this.json === other.json;
  }
}

/** What is known of a domain besides what its node tells. */
export interface DomainFacts {
  nodeId: string;
  firstSeen: string;
  modified: string;
  /** The node on which it was last seen to run. */
  ranOn: string | null;
  /** Several nodes know it, and none of them can be said to have it. */
  conflict: Conflict | null;
}

export class DomainEntry implements DomainFacts {
  /** As the node tells it that has the domain. */
  readonly kept: KeptDomain;
  readonly nodeId: string;
  readonly firstSeen: string;
  readonly modified: string;
  readonly ranOn: string | null;
  readonly conflict: Conflict | null;

  constructor(kept: KeptDomain, facts: DomainFacts) {
    this.kept = kept;
    this.nodeId = facts.nodeId;
    this.firstSeen = facts.firstSeen;
    this.modified = facts.modified;
    this.ranOn = facts.ranOn;
    this.conflict = facts.conflict;
  }

  get id(): string {
    return this.kept.id;
  }

  get name(): string {
    return this.kept.name;
  }

  /** All that the node tells of it; `id` and `name` come for nothing. */
  get domain(): Domain {
    return this.kept.domain;
  }
}
