package dev.edgesdk.sample;

import android.app.Activity;
import android.view.View;
import android.view.ViewGroup;
import android.widget.Button;
import android.widget.LinearLayout;
import android.widget.ScrollView;
import android.widget.TextView;

/** A scrolling column of views, clear of the system's bars. */
final class Screen {
  private final Activity activity;
  private final LinearLayout column;

  Screen(Activity activity) {
    this.activity = activity;
    column = new LinearLayout(activity);
    column.setOrientation(LinearLayout.VERTICAL);
    int space = (int) (16 * activity.getResources().getDisplayMetrics().density);
    column.setPadding(space, space, space, space);
    ScrollView scroll = new ScrollView(activity);
    scroll.setFitsSystemWindows(true);
    scroll.addView(column);
    activity.setContentView(scroll);
  }

  void add(View view) {
    column.addView(
        view, new LinearLayout.LayoutParams(ViewGroup.LayoutParams.MATCH_PARENT, ViewGroup.LayoutParams.WRAP_CONTENT));
  }

  TextView text(String text) {
    TextView view = new TextView(activity);
    view.setTextSize(16);
    view.setTextIsSelectable(true);
    view.setText(text);
    add(view);
    return view;
  }

  void button(String text, Runnable action) {
    Button button = new Button(activity);
    button.setText(text);
    button.setOnClickListener(view -> action.run());
    add(button);
  }
}
