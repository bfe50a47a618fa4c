/** Who is told of what, and what became of it. */
import { Tab, Tabs, TabTitleText } from '@patternfly/react-core';
import { useState } from 'react';
import { useNavigate, useParams } from 'react-router';
import { ActionButton } from '../../parts/actions.tsx';
import { Empty } from '../../parts/list.tsx';
import { ViewPage } from '../../parts/page.tsx';
import { rightReason } from '../../parts/reasons.ts';
import { useAsked } from '../../parts/use-asked.ts';
import { useWords } from '../../texts/index.tsx';
import { Outbox } from './outbox.tsx';
import { EditTarget } from './target-form.tsx';
import { Targets } from './targets.tsx';

const TABS = ['targets', 'sent'] as const;

export default function NotificationsPage() {
  const { texts } = useWords();
  const words = texts.notifications;
  const { tab = TABS[0] } = useParams();
  const navigate = useNavigate();
  const reason = rightReason('notification.manage', useAsked());
  const [making, setMaking] = useState<'mail' | 'webhook' | undefined>();
  const titles = { targets: words.targets, sent: words.sent };
  if (reason !== undefined)
    return (
      <ViewPage title={words.title}>
        <Empty title={reason} />
      </ViewPage>
    );
  return (
    <ViewPage
      title={words.title}
      actions={
        <span className="vk-row">
          <ActionButton
            variant="primary"
            action={{ key: 'mail', label: words.addMail, act: () => setMaking('mail') }}
          />
          <ActionButton
            action={{ key: 'webhook', label: words.addWebhook, act: () => setMaking('webhook') }}
          />
        </span>
      }
    >
      {making && <EditTarget kind={making} close={() => setMaking(undefined)} />}
      <Tabs
        activeKey={tab}
        aria-label={words.title}
        mountOnEnter
        unmountOnExit
        onSelect={(_event, key) => void navigate(`/notifications/${key}`, { replace: true })}
      >
        {TABS.map(key => (
          <Tab key={key} eventKey={key} title={<TabTitleText>{titles[key]}</TabTitleText>}>
            {key === 'targets' && <Targets />}
            {key === 'sent' && <Outbox />}
          </Tab>
        ))}
      </Tabs>
    </ViewPage>
  );
}
