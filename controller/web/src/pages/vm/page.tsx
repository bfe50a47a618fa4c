import {
  Content,
  DescriptionList,
  DescriptionListDescription,
  DescriptionListGroup,
  DescriptionListTerm,
  Flex,
  Label,
  LabelGroup,
} from '@patternfly/react-core';
import { useQuery } from '@tanstack/react-query';
import { type ReactNode, useState } from 'react';
import { useParams } from 'react-router';
import {
  AT_ONCE,
  answer,
  api,
  begun,
  type Domain,
  type EventRecord,
  keyFor,
  list,
  type Task,
} from '../../api/client.ts';
import { type Action, ActionButton, ActionMenu } from '../../parts/actions.tsx';
import { Confirm } from '../../parts/confirm.tsx';
import { PowerLabel, ProtectionLabel } from '../../parts/labels.tsx';
import { Empty } from '../../parts/list.tsx';
import { ViewPage } from '../../parts/page.tsx';
import { PageTabs } from '../../parts/page-tabs.tsx';
import { domainReason } from '../../parts/reasons.ts';
import { Failure, Shown } from '../../parts/shown.tsx';
import { TaskTable } from '../../parts/task-table.tsx';
import { useToasts } from '../../parts/toasts.tsx';
import { useAsked } from '../../parts/use-asked.ts';
import { useWords } from '../../texts/index.tsx';
import { EventTable } from '../events.tsx';
import { VmBackups } from './backups.tsx';
import { VmDisks } from './disks.tsx';
import { VmGuest } from './guest/page.tsx';
import { useManageActions } from './manage.tsx';
import { VmSnapshots } from './snapshots.tsx';

const MiB = 1024 * 1024;
const LAST_TASKS = 50;

export default function VmPage() {
  const { id = '', tab } = useParams();
  const query = useQuery({
    queryKey: ['domains', 'one', id],
    queryFn: () => answer(api.GET('/api/domains/{id}/', { params: { path: { id } } })),
  });
  const { texts } = useWords();
  // whatever the answer is, there is a heading
  if (query.data === undefined)
    return (
      <ViewPage title={texts.vms.title}>
        <Shown query={query}>{() => null}</Shown>
      </ViewPage>
    );
  const failure = query.isError && <Failure error={query.error} again={() => void query.refetch()} />;
  // what is asked or chosen on the page of one VM is not meant for another
  return <OneVm key={id} domain={query.data} tab={tab} failure={failure} />;
}

interface OneVmProps {
  domain: Domain;
  tab: string | undefined;
  /** Why what is shown could not be renewed. */
  failure: ReactNode;
}

function OneVm({ domain, tab, failure }: OneVmProps) {
  const { texts } = useWords();
  const words = texts.vm;
  const { id, verbose_name: name } = domain;
  return (
    <ViewPage
      title={name}
      about={
        <span className="vk-row">
          <PowerLabel state={domain.user_power_state} />
          <ProtectionLabel state={domain.protection.state} />
        </span>
      }
      actions={<VmActions domain={domain} />}
    >
      {failure}
      <PageTabs
        label={name}
        at={`/vms/${id}`}
        active={tab}
        tabs={[
          { key: 'details', title: words.overview, content: () => <Details domain={domain} /> },
          { key: 'backups', title: words.backups, content: () => <VmBackups domain={domain} /> },
          { key: 'snapshots', title: words.snapshots, content: () => <VmSnapshots domain={domain} /> },
          { key: 'disks', title: words.disks, content: () => <VmDisks domain={domain} /> },
          { key: 'guest', title: words.guest, content: () => <VmGuest domain={domain} /> },
          { key: 'tasks', title: words.tasks, content: () => <VmTasks id={id} /> },
          { key: 'events', title: texts.events.title, content: () => <VmEvents id={id} /> },
        ]}
      />
    </ViewPage>
  );
}

type Power = 'start' | 'shutdown' | 'reboot' | 'suspend' | 'resume' | 'reset';
const GENTLE = ['start', 'shutdown', 'reboot', 'suspend', 'resume'] as const;

function power(id: string, action: Power, force: boolean): Promise<Task> {
  const path = `/api/domains/{id}/${action}/` as const;
  return begun(
    api.POST(path, {
      params: { path: { id }, query: AT_ONCE },
      body: {
        ...(force ? { force } : {}),
        idempotency_key: keyFor(`/api/domains/${id}/${action}/`, String(force)),
      },
    }),
  );
}

function VmActions({ domain }: { domain: Domain }) {
  const { texts } = useWords();
  const words = texts.vm;
  const asked = useAsked();
  const { attempt, started } = useToasts();
  const [asks, setAsks] = useState<'off' | 'reset' | undefined>();
  const { id, verbose_name: name } = domain;
  const reason = (action: string) => domainReason(action, domain, asked);
  const run = async (action: Power, force = false) => started(await power(id, action, force));
  const manage = useManageActions(domain);
  const actions: Action[] = [
    ...GENTLE.map(action => ({
      key: action,
      label: words[action],
      reason: reason(action),
      act: () => attempt(() => run(action)),
    })),
    {
      key: 'reset',
      label: words.reset,
      reason: reason('reset'),
      act: () => setAsks('reset'),
      isDanger: true,
    },
    {
      key: 'off',
      label: words.powerOff,
      reason: reason('shutdown'),
      act: () => setAsks('off'),
      isDanger: true,
    },
    ...manage.actions,
  ];
  const backup = async () =>
    started(
      await begun(
        api.POST('/api/domains/backup/', {
          params: { query: AT_ONCE },
          body: { domain: id, increment: true, idempotency_key: keyFor('/api/domains/backup/', id) },
        }),
      ),
    );
  return (
    <Flex gap={{ default: 'gapSm' }}>
      <ActionButton
        variant="primary"
        action={{ key: 'backup', label: words.backup, reason: reason('backup'), to: `/backup?vm=${id}` }}
      />
      <ActionButton
        action={{
          key: 'increment',
          label: words.increment,
          reason: reason('backup'),
          act: () => attempt(backup),
        }}
      />
      <ActionButton action={{ key: 'restore', label: words.restore, to: `/vms/${id}/backups` }} />
      <ActionMenu of={name} actions={actions} />
      {manage.dialog}
      {asks === 'off' && (
        <Confirm
          title={words.powerOffTitle(name)}
          text={words.powerOffText}
          submit={words.powerOff}
          act={() => run('shutdown', true)}
          close={() => setAsks(undefined)}
        />
      )}
      {asks === 'reset' && (
        <Confirm
          title={words.resetTitle(name)}
          text={words.powerOffText}
          submit={words.reset}
          act={() => run('reset')}
          close={() => setAsks(undefined)}
        />
      )}
    </Flex>
  );
}

function Term({ name, children }: { name: string; children: ReactNode }) {
  return (
    <DescriptionListGroup>
      <DescriptionListTerm>{name}</DescriptionListTerm>
      <DescriptionListDescription>{children}</DescriptionListDescription>
    </DescriptionListGroup>
  );
}

function Details({ domain }: { domain: Domain }) {
  const { texts, format } = useWords();
  const words = texts.vm;
  const { guest_utils: guest } = domain;
  return (
    <DescriptionList columnModifier={{ default: '1Col', md: '2Col' }} className="vk-block">
      <Term name={texts.common.node}>{domain.node.verbose_name}</Term>
      <Term name={texts.vms.lastGood}>{format.time(domain.protection.last_good)}</Term>
      <Term name={words.cpus}>{format.number(domain.cpu_count)}</Term>
      <Term name={texts.vms.memory}>{format.size(domain.memory_count * MiB)}</Term>
      <Term name={words.system}>{domain.os_version || domain.os_type}</Term>
      <Term name={words.agent}>{guest.qemu_state ? words.answers : words.silent}</Term>
      <Term name={words.addresses}>{guest.ipv4.join(', ') || texts.none}</Term>
      <Term name={words.tags}>
        {domain.tags.length === 0 ? (
          texts.none
        ) : (
          <LabelGroup>
            {domain.tags.map(tag => (
              <Label key={tag.id}>{tag.verbose_name}</Label>
            ))}
          </LabelGroup>
        )}
      </Term>
      {domain.description !== '' && (
        <Term name={texts.common.description}>
          <Content component="p">{domain.description}</Content>
        </Term>
      )}
    </DescriptionList>
  );
}

function VmTasks({ id }: { id: string }) {
  const { texts } = useWords();
  const filters = { entity: id, limit: LAST_TASKS };
  const query = useQuery({
    queryKey: ['tasks', filters],
    queryFn: () => list<Task>(api.GET('/api/tasks/', { params: { query: filters } })),
  });
  return (
    <Shown query={query}>
      {({ results }) =>
        results.length === 0 ? <Empty title={texts.vm.noTasks} /> : <TaskTable tasks={results} />
      }
    </Shown>
  );
}

function VmEvents({ id }: { id: string }) {
  const { texts } = useWords();
  const filters = { entity: id, limit: LAST_TASKS };
  const query = useQuery({
    queryKey: ['events', filters],
    queryFn: () => list<EventRecord>(api.GET('/api/events/', { params: { query: filters } })),
  });
  return (
    <Shown query={query}>
      {({ results }) =>
        results.length === 0 ? <Empty title={texts.events.empty} /> : <EventTable events={results} />
      }
    </Shown>
  );
}
