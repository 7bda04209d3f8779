# %% [markdown] lang="en"
# # What was solved
#
# Eight exercises, from easy to nasty. Each is a small program in which something does not learn; you fix it in its own cell, and a check runs it on fresh weights. Whatever you solve is noted in a small file of your own; nothing is sent anywhere.

# %% [markdown] lang="zh" of="d3e0765b"
# # 完成情况
#
# 八个练习，由易到难。每个练习都是一个小程序，里面总有什么没在学习；你在程序所在的单元格里把它修好，检查会用新的权重来运行。解决了哪些，都记在你自己的一个小文件里，不会发送到任何地方。

# %%
import gradkit.testing

gradkit.testing.progress()

# %% [markdown] lang="en"
# | notebook | the program | points |
# |---|---|---|
# | [1. A forgotten `no_grad`](01_forgotten_no_grad.ipynb) | tells trees apart by their leaves | 2 |
# | [2. An adapter that will not learn](02_sleeping_adapter.ipynb) | sorts messages with a LoRA adapter that was loaded again | 2 |
# | [3. The NumPy round trip](03_numpy_roundtrip.ipynb) | tells birds apart by their song | 2 |
# | [4. A zero loss](04_zero_loss.ipynb) | tells crops apart on fields of which few have a label | 2 |
# | [5. Two cuts, one behind the other](05_two_cuts.ipynb) | names the writer of a note | 3 |
# | [6. Captions for images](06_image_captions.ipynb) | finds the next word of an image's caption | 3 |
# | [7. Weights that do not move](07_still_weights.ipynb) | tells four kinds of weather apart with a new head | 3 |
# | [8. The clinic](08_clinic.ipynb) | 150 lines with three faults | 6 |
#
# The solutions lie beside them in the folder [solutions](solutions), one notebook each, with the reasons why other ways do not work. Look only when your check says "Solved".
#
# To start again, run `gradkit.testing.progress(forget=True)`.

# %% [markdown] lang="zh" of="66c83042"
# | notebook | 程序 | 分值 |
# |---|---|---|
# | [1. 忘了拿掉的 `no_grad`](01_forgotten_no_grad.ipynb) | 根据叶片区分树种 | 2 |
# | [2. 不肯学习的适配器](02_sleeping_adapter.ipynb) | 用重新加载的 LoRA 适配器给消息分类 | 2 |
# | [3. 绕道 NumPy](03_numpy_roundtrip.ipynb) | 根据鸣声分辨鸟类 | 2 |
# | [4. 等于零的损失](04_zero_loss.ipynb) | 从照片识别作物，只有部分农田有标签 | 2 |
# | [5. 一前一后两处切断](05_two_cuts.ipynb) | 判断手写笔记出自谁手 | 3 |
# | [6. 给图片写说明](06_image_captions.ipynb) | 给图片说明接上下一个词 | 3 |
# | [7. 纹丝不动的权重](07_still_weights.ipynb) | 换上新的分类头，区分四种天气 | 3 |
# | [8. 综合诊室](08_clinic.ipynb) | 150 行程序，三处错误 | 6 |
#
# 解答放在旁边的 [solutions](solutions) 文件夹里，每个练习一份 notebook，并说明为什么别的办法不行。等检查显示“已解决”之后再看。
#
# 想重新开始，运行 `gradkit.testing.progress(forget=True)`。

# %% [markdown] lang="en"
# ## Hand in
#
# Write your name, or the number that your teacher gave you, between the quotes, and run the cell. It writes a file beside this notebook: points, checks, hints, your predictions and your guesses in the quiz. Send that file; it is plain text, and you can read it first.

# %% [markdown] lang="zh" of="32a5191f"
# ## 提交
#
# 在引号里写上你的名字，或者老师给你的编号，然后运行。它会在这份 notebook 旁边写出一个文件：得分、检查次数、提示次数、你的预测，以及你在小测验里的回答。把这个文件交上去即可；它是纯文本，可以先打开看看。

# %% tags=["raises-exception"]
gradkit.testing.results("")
