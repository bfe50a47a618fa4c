/** Tabs of a page, the chosen one of which stands in its address. */
import { Tab, Tabs, TabTitleText } from '@patternfly/react-core';
import type { ReactNode } from 'react';
import { useNavigate } from 'react-router';
import { useWords } from '../texts/index.tsx';

export interface PageTab<K extends string> {
  key: K;
  title: string;
  /** Made when it is shown. */
  content: () => ReactNode;
}

interface PageTabsProps<K extends string> {
  /** Of the whole. */
  label: string;
  tabs: readonly PageTab<K>[];
  /** The shown one; the first when there is none of this name. */
  active: string | undefined;
  /** Address of the page; that of a tab is below it. */
  at: string;
}

export function PageTabs<K extends string>({ label, tabs, active, at }: PageTabsProps<K>) {
  const { texts } = useWords();
  const navigate = useNavigate();
  const shown = tabs.find(({ key }) => key === active) ?? tabs[0];
  return (
    <Tabs
      activeKey={shown?.key ?? ''}
      aria-label={label}
      mountOnEnter
      unmountOnExit
      backScrollAriaLabel={texts.common.scrollBack}
      forwardScrollAriaLabel={texts.common.scrollForward}
      onSelect={(_event, key) => void navigate(`${at}/${key}`, { replace: true })}
    >
      {tabs.map(({ key, title, content }) => (
        <Tab key={key} eventKey={key} title={<TabTitleText>{title}</TabTitleText>}>
          {key === shown?.key && content()}
        </Tab>
      ))}
    </Tabs>
  );
}
